"""Computes how large a msgpack message will be once decoded, without decoding it: a byte may become a hundred.

It reads the heads of msgpack values and skips their content. The message must be well formed, which holds once msgspec
has found its end.
"""

import struct

from .errors import RequestError

# Bound for one request: a long conversation with many tools has some thousands.
MOST_VALUES = 1 << 17
# The size of a Python object besides its content, including its pointer in a list or dict.
_OBJECT_BYTES = 128

_BYTE, _SHORT, _LONG = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
# By head byte: the format of the length, and how many values and bytes each unit of it stands for.
_COUNTED = {
    0xC4: (_BYTE, 0, 1), 0xC5: (_SHORT, 0, 1), 0xC6: (_LONG, 0, 1),  # bytes
    0xD9: (_BYTE, 0, 1), 0xDA: (_SHORT, 0, 1), 0xDB: (_LONG, 0, 1),  # text
    0xDC: (_SHORT, 1, 0), 0xDD: (_LONG, 1, 0),  # arrays
    0xDE: (_SHORT, 2, 0), 0xDF: (_LONG, 2, 0),  # maps
}  # fmt: skip
# Values without a length: bytes after the head.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip


def unpacked_bytes(packed: bytes | memoryview) -> int:
    """An upper bound of the memory of its objects; raises if there are more than any request needs."""
    return bytes_of_values(packed, num_values(packed))


def bytes_of_values(packed: bytes | memoryview, count: int) -> int:
    """The same, if the objects have been counted."""
    return len(packed) + _OBJECT_BYTES * count


def num_values(packed: bytes | memoryview) -> int:
    """How many values it holds, itself included; raises if there are more than any request needs."""
    offset, left, count = 0, 1, 0
    while left:
        offset, inner = _after_head(packed, offset)
        left += inner - 1
        count += 1
        if count + left > MOST_VALUES:
            raise RequestError(f"A request may hold {MOST_VALUES:,} values, and this one holds more.")
    return count


def array_length(packed: bytes | memoryview) -> int:
    """The length of a packed array; 0 for anything else, which decoding will refuse."""
    head = packed[0]
    is_array = 0x90 <= head < 0xA0 or head in (0xDC, 0xDD)
    return _after_head(packed, 0)[1] if is_array else 0


def _after_head(packed: bytes | memoryview, offset: int) -> tuple[int, int]:
    """The offset of the value after this head, and the number of values in this one."""
    head = packed[offset]
    offset += 1
    if head < 0x80 or head >= 0xE0:  # small numbers
        return offset, 0
    if head < 0x90:
        return offset, 2 * (head & 0x0F)
    if head < 0xA0:
        return offset, head & 0x0F
    if head < 0xC0:
        return offset + (head & 0x1F), 0
    if (counted := _COUNTED.get(head)) is None:
        if head not in _FIXED:
            raise RequestError("A request holds text, bytes, numbers, lists and maps only.")
        return offset + _FIXED[head], 0
    length_struct, values, num_bytes = counted
    (length,) = length_struct.unpack_from(packed, offset)
    return offset + length_struct.size + num_bytes * length, values * length
