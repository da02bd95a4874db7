"""One file of packed weights: written whole or not at all, checked, and mapped into memory to be used in place.

  0       a preamble: what this is, where the header lies, its digest, and on which boot the contents were last checked
  2 MiB   the tensors, each at a multiple of 64 bytes
  behind  the header, JSON: for each weight its fields, and for each of its tensors where it lies and its checksum

So it can be written while nobody knows yet what else will come, and each weight be used from the file once it is there.
Contents are checked in full on the first use after the machine started, and trusted until it starts again: what the
system keeps in memory doesn't rot, and reading from the disk costs more than the checksum.
"""

import hashlib
import mmap
import os
import struct
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from ...kernels.cpu.weights.blocks import JoinedWeight
from ...kernels.cpu.weights.packed import NativeWeight
from ...kernels.cpu.weights.quantized import OrderedWeight

KINDS: dict[str, type[NativeWeight]] = {kind.__name__: kind for kind in (NativeWeight, OrderedWeight, JoinedWeight)}
_PREAMBLE = struct.Struct("<16s32sQQ36s")  # mark, the header's digest, where it lies, its length, the boot
_MARK = b"penstock weights"
_BOOT_AT = _PREAMBLE.size - 36
_DATA_AT = 2 << 20  # so that large pages of a file fall onto large pages of memory
_TENSOR_ALIGN = 64
_PIECE = 8 << 20


class DamagedFile(Exception):
    """Not what was written."""


class _StoredTensor(msgspec.Struct):
    offset: int  # in the file
    nbytes: int
    dtype: str
    shape: list[int]
    checksum: str  # crc32 in eight hexadecimal digits


class _StoredWeight(msgspec.Struct):
    kind: str  # a row of KINDS
    plain: dict[str, int | str | bool | None]  # its fields that are no tensors
    tensors: dict[str, _StoredTensor]


class _Header(msgspec.Struct):
    weights: dict[str, _StoredWeight]


class Stopped(Exception):
    """Told to write no further."""


class WeightWriter:
    """Fills an empty file, one weight after the other."""

    def __init__(self, file: int, pause: Callable[[], None] = lambda: None) -> None:
        """`pause` is called after each piece."""
        self._file = file
        self._pause = pause
        self._weights: dict[str, _StoredWeight] = {}
        self._end = _DATA_AT

    def add(self, name: str, weight: NativeWeight) -> dict[str, int]:
        """Where each of its tensors begins in the file."""
        planned = _planned(weight, self._end)
        for field, stored in planned.tensors.items():
            _take_room(self._file, stored.offset, stored.nbytes)
            stored.checksum = f"{_write_tensor(self._file, getattr(weight, field), stored.offset, self._pause):08x}"
            self._end = stored.offset + _up(stored.nbytes, _TENSOR_ALIGN)
        self._weights[name] = planned
        return {field: stored.offset for field, stored in planned.tensors.items()}

    def finish(self) -> None:
        """Make what was written a file that can be read. The contents are on the disk before the preamble is."""
        text = msgspec.json.encode(_Header(self._weights))
        os.ftruncate(self._file, self._end)
        _write(self._file, text, self._end)
        os.fsync(self._file)
        digest = hashlib.sha256(text).digest()
        os.pwrite(self._file, _PREAMBLE.pack(_MARK, digest, self._end, len(text), _boot()), 0)
        os.fsync(self._file)


def write_weights(file: int, weights: dict[str, NativeWeight], pause: Callable[[], None]) -> None:
    """Fill an empty file with these."""
    _take_room(file, 0, packed_size(weights))
    writer = WeightWriter(file, pause)
    for name, weight in weights.items():
        writer.add(name, weight)
    writer.finish()


def packed_size(weights: dict[str, NativeWeight]) -> int:
    """Bytes of the file, without its header."""
    tensors = (value for weight in weights.values() for value in vars(weight).values() if isinstance(value, Tensor))
    return _DATA_AT + sum(_up(tensor.nbytes, _TENSOR_ALIGN) for tensor in tensors)


def read_weights(file: int) -> dict[str, NativeWeight]:
    """The weights in memory that is the file's own; raises `DamagedFile`."""
    header, boot = _read_header(file)
    mapped = mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
    tensors = [stored for weight in header.weights.values() for stored in weight.tensors.values()]
    if boot != _boot():
        with memoryview(mapped) as view:
            _check(view, tensors)
        with suppress(OSError):  # of another user's file, say: then it is checked once more the next time
            os.pwrite(file, _boot(), _BOOT_AT)
    return {name: _weight(stored, mapped) for name, stored in header.weights.items()}


# --- writing ----------------------------------------------------------------------------------------------------------


def _planned(weight: NativeWeight, at: int) -> _StoredWeight:
    """Where its tensors will lie, from `at` on."""
    found = {field.name: getattr(weight, field.name) for field in fields(weight)}
    tensors = {}
    for field, tensor in found.items():
        if isinstance(tensor, Tensor):
            dtype = str(tensor.dtype).removeprefix("torch.")
            tensors[field] = _StoredTensor(at, tensor.nbytes, dtype, list(tensor.shape), "")
            at += _up(tensor.nbytes, _TENSOR_ALIGN)
    plain = {key: each for key, each in found.items() if key not in tensors}
    return _StoredWeight(type(weight).__name__, plain, tensors)


def _take_room(file: int, at: int, nbytes: int) -> None:
    """A disk that is full is noticed before anything is written."""
    if nbytes:
        os.posix_fallocate(file, at, nbytes)


def _write_tensor(file: int, tensor: Tensor, at: int, pause: Callable[[], None]) -> int:
    checksum = 0
    content = tensor.contiguous().flatten().view(torch.uint8).numpy().data
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        checksum = zlib.crc32(piece, checksum)
        _write(file, piece, at + start)
        pause()
    return checksum


def _write(file: int, content: bytes | memoryview, at: int) -> None:
    written = 0
    while written < len(content):
        written += os.pwrite(file, content[written:], at + written)


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_header(file: int) -> tuple[_Header, bytes]:
    preamble = os.pread(file, _PREAMBLE.size, 0)
    if len(preamble) < _PREAMBLE.size:
        raise DamagedFile("it is too short")
    mark, digest, at, length, boot = _PREAMBLE.unpack(preamble)
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
    return header, boot


def _check(content: memoryview, tensors: list[_StoredTensor]) -> None:
    def differs(stored: _StoredTensor) -> bool:
        return f"{zlib.crc32(content[stored.offset : stored.offset + stored.nbytes]):08x}" != stored.checksum

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        if any(pool.map(differs, tensors)):
            raise DamagedFile("its contents are not as they were written")


def _weight(stored: _StoredWeight, mapped: mmap.mmap) -> NativeWeight:
    found: dict[str, Any] = {name: _tensor(each, mapped) for name, each in stored.tensors.items()}
    try:
        return KINDS[stored.kind](**(stored.plain | found))
    except (KeyError, TypeError) as error:
        raise DamagedFile(f"it holds weights of another form ({error})") from None


def _tensor(stored: _StoredTensor, mapped: mmap.mmap) -> Tensor:
    flat = in_mapping(mapped, stored.offset, stored.nbytes)
    return flat.view(getattr(torch, stored.dtype)).view(stored.shape)


def in_mapping(mapped: mmap.mmap, offset: int, nbytes: int) -> Tensor:
    """So many bytes of a mapped file, as they lie there."""
    with warnings.catch_warnings():
        # Torch warns of memory that cannot be written, which is the point here.
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(mapped, dtype=torch.uint8, count=nbytes, offset=offset)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _boot() -> bytes:
    """The name that the system gave itself when it started."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
