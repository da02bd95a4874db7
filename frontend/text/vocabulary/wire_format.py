"""Protobuf's wire format, as far as needed to read a file: the fields of one message, each with its number.

A field has a kind; reading it as another kind raises ValueError, as do bytes that are no message.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _EIGHT_BYTES, _CONTENT, _FOUR_BYTES = 0, 1, 2, 5
_WRITTEN = {
    _VARINT: "a whole number", _EIGHT_BYTES: "eight bytes", _CONTENT: "a text or a message", _FOUR_BYTES: "four bytes"
}  # fmt: skip
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_LONGEST_VARINT = 10
_LARGEST = 1 << 64


class Field(NamedTuple):
    number: int
    kind: int
    value: int | bytes  # a whole number's value; for other kinds, the bytes

    def whole_number(self) -> int:
        if not isinstance(self.value, int):
            raise self._misplaced(_VARINT)
        return self.value

    def signed(self) -> int:
        """The value as signed: negative numbers are written as unsigned ones of 64 bits."""
        value = self.whole_number()
        return value - _LARGEST if value >= _LARGEST >> 1 else value

    def content(self) -> bytes:
        """The bytes of a text or a message."""
        if self.kind != _CONTENT or isinstance(self.value, int):
            raise self._misplaced(_CONTENT)
        return self.value

    def real(self) -> float:
        if self.kind != _FOUR_BYTES or isinstance(self.value, int):
            raise self._misplaced(_FOUR_BYTES)
        [value] = struct.unpack("<f", self.value)
        return float(value)

    def _misplaced(self, expected: int) -> ValueError:
        return ValueError(f"its field {self.number} is {_WRITTEN[self.kind]} where {_WRITTEN[expected]} belongs")


def fields(message: bytes) -> Iterator[Field]:
    """The fields; raises ValueError if the bytes are no message."""
    position = 0
    while position < len(message):
        start = position
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if not number:
            raise ValueError(f"byte {start} begins a field without a number")
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield Field(number, kind, value)
            continue
        if kind == _CONTENT:
            length, position = _varint(message, position)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"byte {start} begins a field of the unknown kind {kind}")
        if position + length > len(message):
            raise ValueError(f"it ends in the middle of a field, {position + length - len(message):,} bytes too early")
        yield Field(number, kind, message[position : position + length])
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80 and value < _LARGEST:
            return value, position + index + 1
    raise ValueError(f"there is no whole number at byte {position}")
