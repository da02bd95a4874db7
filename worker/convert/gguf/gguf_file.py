"""A GGUF file that is written piece by piece, so that no tensor need ever be in memory as a whole.

    magic, version, counts | metadata | name, shape, type and offset of each tensor | padding | the tensors

The tensors' list comes first, so all shapes and types must be known before the first piece.
"""

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy

from ....kernels.arrays import Array
from ....protocol.files.gguf.types import GgmlType
from ..prepared_file import PreparedFile

_MAGIC, _VERSION, ALIGNMENT = b"GGUF", 3, 32

Value = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]

# Each kind of value: its number in the file and its letter in `struct`. Single numbers are counts and ids; lists are
# kinds of tokens, which other programs read as signed.
_STRING, _LIST = 8, 9
_ALONE: dict[type, tuple[int, str]] = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
_IN_LISTS: dict[type, tuple[int, str]] = {**_ALONE, int: (5, "i")}


class GgufTensor(NamedTuple):
    """A tensor that will be written."""

    type: GgmlType
    shape: tuple[int, ...]  # outputs before inputs; the file has the reverse

    @property
    def row_bytes(self) -> int:
        return self.type.nbytes(self.shape[-1])

    @property
    def num_rows(self) -> int:
        return prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        return self.num_rows * self.row_bytes


class GgufFile(PreparedFile):
    """`rows` may be given in any order."""

    def __init__(self, path: Path, metadata: Mapping[str, Value], tensors: dict[str, GgufTensor]) -> None:
        self.tensors = tensors
        self._starts, end = _offsets(tensors)
        super().__init__(path, _header(metadata, tensors, self._starts), end)

    def rows(self, name: str, octets: Array, first: int) -> None:
        """Write rows of a tensor, from its row `first` on: uint8 [rows, bytes of a row]."""
        planned = self.tensors[name]
        if octets.dtype != numpy.uint8 or octets.shape[1] != planned.row_bytes:
            raise ValueError(f"{name} is planned as {planned}, and {octets.dtype} {octets.shape} comes")
        self.put(octets, self._starts[name] + first * planned.row_bytes)


def header_bytes(metadata: Mapping[str, Value], tensors: dict[str, GgufTensor]) -> int:
    """Size of the file before the tensors."""
    return len(_header(metadata, tensors, _offsets(tensors)[0]))


def _offsets(tensors: dict[str, GgufTensor]) -> tuple[dict[str, int], int]:
    """Offsets of the tensors after the header, and the end of the last one."""
    starts, end = {}, 0
    for name, planned in tensors.items():
        starts[name] = end
        end += _padded(planned.nbytes)
    return starts, end


def _padded(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGNMENT


def _header(metadata: Mapping[str, Value], tensors: dict[str, GgufTensor], starts: dict[str, int]) -> bytes:
    content = bytearray(_MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        content += _text(key) + _value(value)
    for name, planned in tensors.items():
        shape = planned.shape[::-1]
        content += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        content += struct.pack("<IQ", planned.type.number, starts[name])
    return bytes(content.ljust(_padded(len(content)), b"\0"))


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if not isinstance(value, list):
        number, letter = _ALONE[type(value)]
        return struct.pack(f"<I{letter}", number, value)
    kind = type(value[0])
    if kind is str:
        return struct.pack("<IIQ", _LIST, _STRING, len(value)) + b"".join(_text(str(each)) for each in value)
    number, letter = _IN_LISTS[kind]
    return struct.pack(f"<IIQ{len(value)}{letter}", _LIST, number, len(value), *value)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
