"""One file of packed weights: written whole or not at all, mapped into memory, and verified before use.

  0       a preamble: a mark, the header's offset, and its digest
  2 MiB   the arrays, each at a multiple of 64 bytes
  end     the header, JSON: the file's name, and for each weight its fields, its arrays' offsets and their checksums

So it can be written before all weights are known, and each weight can be used from the file once it is written. The
header is verified when the file is opened, each weight when it is first read. A damaged one is rewritten at its offset.
"""

import hashlib
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import msgspec
import numpy

from ....kernels.arrays import Array
from ....kernels.cpu.weights.blocks import JoinedWeight
from ....kernels.cpu.weights.checksum import PIECE, RunningChecksum
from ....kernels.cpu.weights.packed import NativeWeight
from ....kernels.cpu.weights.quantized import OrderedWeight

KINDS: dict[str, type[NativeWeight]] = {kind.__name__: kind for kind in (NativeWeight, OrderedWeight, JoinedWeight)}
_PREAMBLE = struct.Struct("<16s32sQQ")  # mark, the header's digest, offset and length
_MARK = b"penstock weights"
_DATA_AT = 2 << 20  # aligns large pages of the file with large pages of memory
_ARRAY_ALIGN = 64
_PIECE = 8 * PIECE


class DamagedFile(Exception):
    """The contents differ from what was written."""


class _StoredArray(msgspec.Struct):
    offset: int  # in the file
    nbytes: int
    dtype: str
    shape: list[int]
    checksum: str  # in hexadecimal digits


class _StoredWeight(msgspec.Struct):
    kind: str  # a row of KINDS
    plain: dict[str, int | str | bool | None]  # its fields that aren't arrays
    tensors: dict[str, _StoredArray]


class _Header(msgspec.Struct):
    name: str  # of the file, to detect a renamed one
    weights: dict[str, _StoredWeight]


class Stopped(Exception):
    """Writing was stopped."""


class WeightWriter:
    """Fills an empty file, one weight after another."""

    def __init__(self, file: int, name: str, pause: Callable[[], None] = lambda: None) -> None:
        """`name` is the file's final name; `pause` is called after each piece."""
        self._file = file
        self._name = name
        self._pause = pause
        self._weights: dict[str, _StoredWeight] = {}
        self._end = _DATA_AT

    def add(self, name: str, weight: NativeWeight) -> dict[str, int]:
        """Write a weight; return the offsets of its arrays."""
        planned = _planned(weight, self._end)
        for field, stored in planned.tensors.items():
            _take_room(self._file, stored.offset, stored.nbytes)
            stored.checksum = _write_array(self._file, getattr(weight, field), stored.offset, self._pause)
            self._end = stored.offset + _up(stored.nbytes, _ARRAY_ALIGN)
        self._weights[name] = planned
        return {field: stored.offset for field, stored in planned.tensors.items()}

    def finish(self) -> None:
        """Complete the file. The contents are flushed to the disk before the preamble."""
        text = msgspec.json.encode(_Header(self._name, self._weights))
        os.ftruncate(self._file, self._end)
        _write(self._file, text, self._end)
        os.fsync(self._file)
        digest = hashlib.sha256(text).digest()
        os.pwrite(self._file, _PREAMBLE.pack(_MARK, digest, self._end, len(text)), 0)
        os.fsync(self._file)


def write_weights(file: int, name: str, weights: dict[str, NativeWeight], pause: Callable[[], None]) -> None:
    """Fill an empty file of this name with these weights."""
    _take_room(file, 0, packed_size(weights))
    writer = WeightWriter(file, name, pause)
    for key, weight in weights.items():
        writer.add(key, weight)
    writer.finish()


def packed_size(weights: dict[str, NativeWeight]) -> int:
    """Bytes of the file, without its header."""
    values = (value for weight in weights.values() for value in vars(weight).values())
    arrays = (value for value in values if isinstance(value, numpy.ndarray))
    return _DATA_AT + sum(_up(each.nbytes, _ARRAY_ALIGN) for each in arrays)


class KeptWeights:
    """The weights of a written file, in its mapped pages."""

    def __init__(self, file: int, name: str) -> None:
        """Raises `DamagedFile` if the header is invalid."""
        self._file = file
        self._stored = _read_header(file, name).weights
        self._mapped = mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._checked: dict[str, NativeWeight] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __contains__(self, key: str) -> bool:
        return key in self._stored

    def weight(self, key: str) -> NativeWeight:
        """The weight, verified when first read; raises `DamagedFile` if it differs from what was written."""
        if key not in self._checked:
            found = _weight(self._stored[key], self._mapped)
            if _checksums(found) != _written(self._stored[key]):
                raise DamagedFile(f"{key} is not as it was written")
            self._checked[key] = found
        return self._checked[key]

    def repair(self, key: str, made: NativeWeight) -> NativeWeight:
        """Rewrite a weight at its offset, and return it from there.

        Raises `DamagedFile` if the weight has another form, and `OSError` if the file can't be written.
        """
        stored = self._stored[key]
        if _checksums(made) != _written(stored):
            raise DamagedFile(f"{key} is packed otherwise than it was")
        for field, tensor in stored.tensors.items():
            _write_array(self._file, getattr(made, field), tensor.offset, lambda: None)
        return self.weight(key)


# --- writing ----------------------------------------------------------------------------------------------------------


def _planned(weight: NativeWeight, at: int) -> _StoredWeight:
    """Plan the offsets of its arrays, beginning at `at`."""
    found = {field.name: getattr(weight, field.name) for field in fields(weight)}
    tensors = {}
    for field, array in found.items():
        if isinstance(array, numpy.ndarray):
            tensors[field] = _StoredArray(at, array.nbytes, array.dtype.name, list(array.shape), "")
            at += _up(array.nbytes, _ARRAY_ALIGN)
    plain = {key: each for key, each in found.items() if key not in tensors}
    return _StoredWeight(type(weight).__name__, plain, tensors)


def _take_room(file: int, at: int, nbytes: int) -> None:
    """Allocate the space, so that a full disk is noticed before anything is written."""
    if nbytes:
        os.posix_fallocate(file, at, nbytes)


def _write_array(file: int, array: Array, at: int, pause: Callable[[], None]) -> str:
    """Write an array; return its checksum."""
    checksum, content = RunningChecksum(), numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        checksum.add(piece)
        _write(file, piece.data, at + start)
        pause()
    return checksum.text()


def _write(file: int, content: bytes | memoryview, at: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(file, content[written:], at + written)


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_header(file: int, name: str) -> _Header:
    preamble = os.pread(file, _PREAMBLE.size, 0)
    if len(preamble) < _PREAMBLE.size:
        raise DamagedFile("it is too short")
    mark, digest, at, length = _PREAMBLE.unpack(preamble)
    size = os.fstat(file).st_size
    if mark == _MARK and at + length != size:
        raise DamagedFile(f"it has {size:,} bytes instead of {at + length:,}")
    text = os.pread(file, length, at) if mark == _MARK else b""
    if mark != _MARK or hashlib.sha256(text).digest() != digest:
        raise DamagedFile("its header is not as it was written")
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.DecodeError as error:
        raise DamagedFile(f"its header is of another form ({error})") from None
    if header.name != name:
        raise DamagedFile(f"it is {header.name} under another name")
    return header


def _written(stored: _StoredWeight) -> dict[str, str]:
    return {field: tensor.checksum for field, tensor in stored.tensors.items()}


def _checksums(weight: NativeWeight) -> dict[str, str]:
    """The checksums of its arrays, by field."""
    found = {field.name: getattr(weight, field.name) for field in fields(weight)}
    arrays = {name: numpy.ascontiguousarray(each) for name, each in found.items() if isinstance(each, numpy.ndarray)}
    return {name: RunningChecksum().add(each).text() for name, each in arrays.items()}


def _weight(stored: _StoredWeight, mapped: mmap.mmap) -> NativeWeight:
    found: dict[str, Any] = {name: _array(each, mapped) for name, each in stored.tensors.items()}
    try:
        return KINDS[stored.kind](**(stored.plain | found))
    except (KeyError, TypeError) as error:
        raise DamagedFile(f"it holds weights of another form ({error})") from None


def _array(stored: _StoredArray, mapped: mmap.mmap) -> Array:
    octets = numpy.frombuffer(mapped, numpy.uint8, stored.nbytes, stored.offset)
    return octets.view(stored.dtype).reshape(stored.shape)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
