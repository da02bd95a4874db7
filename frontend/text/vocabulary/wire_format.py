"""Protobuf's wire format, as far as reading a file takes it: the fields of one message, each with its number.

A whole number comes as `int`, everything else as its bytes. Knows nothing of what the numbers mean.
"""

from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_LONGEST_VARINT = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Raises ValueError where the bytes are no message."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if kind == _LENGTH:
            length, position = _varint(message, position)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"byte {position} begins a field of the unknown kind {kind}")
        if position + length > len(message):
            raise ValueError(f"it ends in the middle of a field, {position + length - len(message):,} bytes too early")
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError(f"there is no whole number at byte {position}")
