"""A safetensors file in mapped memory. Its tensors are arrays, views of the file's pages that are read when used.

8 bytes   the header's length
header    JSON: by name each tensor's dtype, shape, and first and last + 1 byte of the values; and metadata
values    of all tensors, one behind the other
"""

import math
import mmap
import os
from collections.abc import KeysView
from io import BufferedReader
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import msgspec
import numpy

from ....kernels.arrays import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT8_E8M0, FLOAT16, FLOAT32, Array, DType
from ....protocol.errors import ConfigError

DTYPES: dict[str, DType] = {
    "F64": numpy.dtype(numpy.float64),
    "F32": FLOAT32,
    "F16": FLOAT16,
    "BF16": BFLOAT16,
    "F8_E4M3": FLOAT8_E4M3,
    "F8_E5M2": FLOAT8_E5M2,
    "F8_E8M0": FLOAT8_E8M0,
    **{f"I{8 * size}": numpy.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": numpy.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    "BOOL": numpy.dtype(numpy.bool_),
    "C64": numpy.dtype(numpy.complex64),
}
_LENGTH = 8  # bytes of the header's length
_LONGEST_HEADER = 100_000_000  # safetensors' own limit

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Shape = Annotated[list[_Count], msgspec.Meta(max_length=64)]  # as many dimensions as numpy has


class _Entry(msgspec.Struct):
    dtype: str
    shape: _Shape
    data_offsets: tuple[_Count, _Count]  # first and last + 1 byte of the values


class Header(NamedTuple):
    tensors: dict[str, _Entry]
    metadata: dict[str, str]
    values_at: int  # where in the file the values begin


class MappedSafetensors:
    """The file, open until nothing refers to it or its arrays."""

    def __init__(self, path: Path, file: BufferedReader, header: Header | None = None) -> None:
        """Raises `ConfigError` if the file is damaged. `header`: as it was read before, if it was."""
        self.path = path
        self.header = header or read_header(path, file)
        self._mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)

    @classmethod
    def open(cls, path: Path) -> Self:
        with path.open("rb") as file:
            return cls(path, file)

    @property
    def names(self) -> KeysView[str]:
        return self.header.tensors.keys()

    def array(self, name: str) -> Array:
        """The tensor of this name, which must not be written to."""
        stored = self.header.tensors[name]
        if (dtype := DTYPES.get(stored.dtype)) is None:
            raise ConfigError(
                f"{name} is stored as {stored.dtype} in {self.path}. Use a float32, float16 or bfloat16 checkpoint."
            )
        offset = self.header.values_at + stored.data_offsets[0]
        values = numpy.frombuffer(self._mapped, dtype, math.prod(stored.shape), offset)
        try:
            return values.reshape(stored.shape)
        except (ValueError, OverflowError) as error:  # of no values, and nevertheless too large
            raise ConfigError(f"{self.path} is damaged: {name} has the shape {stored.shape} ({error}).") from None

    def release(self) -> None:
        """Give back the memory of what was read, which counts as this process's; arrays read it again when used."""
        self._mapped.madvise(mmap.MADV_DONTNEED)


def read_header(path: Path, file: BufferedReader) -> Header:
    """Read the header and check that the file has the values that it lists; raises `ConfigError` if not."""
    size = os.fstat(file.fileno()).st_size
    try:
        return _header(file, size)
    except _Damage as damage:
        raise ConfigError(f"{path} is damaged: {damage}. Download it again.") from None


class _Damage(Exception):
    """Something wrong with a file, in a few words."""


def _header(file: BufferedReader, size: int) -> Header:
    length = int.from_bytes(os.pread(file.fileno(), _LENGTH, 0), "little")
    values_at = _LENGTH + length
    if size < _LENGTH or length > _LONGEST_HEADER:
        raise _Damage(f"its {size:,} bytes are no safetensors file")
    if values_at > size:
        raise _Damage(f"it is truncated at {size:,} bytes, within its header")
    try:
        found = msgspec.json.decode(os.pread(file.fileno(), length, _LENGTH), type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(found.pop("__metadata__", b"{}"), type=dict[str, str] | None)
        tensors = {name: msgspec.json.decode(each, type=_Entry) for name, each in found.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Damage("its header is no safetensors header") from None
    end = 0
    for name, each in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        first, last = each.data_offsets
        dtype = DTYPES.get(each.dtype)
        size_of_shape = None if dtype is None else dtype.itemsize * math.prod(each.shape)
        if first != end or last < first or size_of_shape not in (None, last - first):
            raise _Damage(f"its header gives {name} bytes {first:,} to {last:,}, which are not those of its shape")
        end = last
    if size < values_at + end:
        raise _Damage(f"it is truncated at {size:,} of {values_at + end:,} bytes")
    if size > values_at + end:
        raise _Damage(f"it has {size:,} bytes, and its header speaks of {values_at + end:,}")
    return Header(tensors, metadata or {}, values_at)
