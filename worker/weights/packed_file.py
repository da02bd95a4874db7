"""One file of packed weights: written whole or not at all, checked, and mapped into memory to be used in place.

  0       a preamble: what this is, the header's digest and length, and on which boot the contents were last checked
  4096    the header, JSON: for each weight its fields, and for each of its tensors where it lies and its checksum
  2 MiB   the tensors, each at a multiple of 64 bytes

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

from ...kernels.cpu.weights.packed import NativeWeight
from ...kernels.cpu.weights.quantized import OrderedWeight

KINDS: dict[str, type[NativeWeight]] = {kind.__name__: kind for kind in (NativeWeight, OrderedWeight)}
_PREAMBLE = struct.Struct("<16s32sQ36s")  # mark, the header's digest, its length, the boot
_MARK = b"penstock weights"
_HEADER_AT = 4096
_BOOT_AT = _PREAMBLE.size - 36
_DATA_ALIGN = 2 << 20  # so that large pages of a file fall onto large pages of memory
_TENSOR_ALIGN = 64
_PIECE = 8 << 20


class DamagedFile(Exception):
    """Not what was written."""


class _StoredTensor(msgspec.Struct):
    offset: int  # from the first tensor
    nbytes: int
    dtype: str
    shape: list[int]
    checksum: str  # crc32 in eight hexadecimal digits


class _StoredWeight(msgspec.Struct):
    kind: str  # a row of KINDS
    plain: dict[str, int | str | bool | None]  # its fields that are no tensors
    tensors: dict[str, _StoredTensor]


class _Header(msgspec.Struct):
    data_at: int
    size: int  # of the whole file
    weights: dict[str, _StoredWeight]


class Stopped(Exception):
    """Told to write no further."""


def write_weights(file: int, weights: dict[str, NativeWeight], pause: Callable[[], None]) -> None:
    """Fill an empty file; `pause` is called after each piece."""
    header = _planned(weights)
    os.posix_fallocate(file, 0, header.size)
    for name, weight in weights.items():
        for field, stored in header.weights[name].tensors.items():
            checksum = _write_tensor(file, getattr(weight, field), header.data_at + stored.offset, pause)
            stored.checksum = f"{checksum:08x}"
    text = msgspec.json.encode(header)
    os.pwrite(file, text, _HEADER_AT)
    os.fsync(file)
    os.pwrite(file, _PREAMBLE.pack(_MARK, hashlib.sha256(text).digest(), len(text), _boot()), 0)
    os.fsync(file)


def packed_size(weights: dict[str, NativeWeight]) -> int:
    return _planned(weights).size


def read_weights(file: int) -> dict[str, NativeWeight]:
    """The weights in memory that is the file's own; raises `DamagedFile`."""
    header, boot = _read_header(file)
    mapped = mmap.mmap(file, header.size, mmap.MAP_SHARED, mmap.PROT_READ)
    tensors = [stored for weight in header.weights.values() for stored in weight.tensors.values()]
    if boot != _boot():
        with memoryview(mapped) as view:
            _check(view, header.data_at, tensors)
        with suppress(OSError):  # of another user's file, say: then it is checked once more the next time
            os.pwrite(file, _boot(), _BOOT_AT)
    return {name: _weight(stored, mapped, header.data_at) for name, stored in header.weights.items()}


# --- writing ----------------------------------------------------------------------------------------------------------


def _planned(weights: dict[str, NativeWeight]) -> _Header:
    """Where everything will lie; a checksum has the same length whatever it is."""
    stored, offset = {}, 0
    for name, weight in weights.items():
        found = {field.name: getattr(weight, field.name) for field in fields(weight)}
        tensors = {}
        for field, tensor in found.items():
            if isinstance(tensor, Tensor):
                dtype = str(tensor.dtype).removeprefix("torch.")
                tensors[field] = _StoredTensor(offset, tensor.nbytes, dtype, list(tensor.shape), "0" * 8)
                offset += _up(tensor.nbytes, _TENSOR_ALIGN)
        plain = {key: each for key, each in found.items() if key not in tensors}
        stored[name] = _StoredWeight(type(weight).__name__, plain, tensors)
    header = _Header(0, 0, stored)
    # Both numbers are written with more digits than there are now.
    header.data_at = _up(_HEADER_AT + len(msgspec.json.encode(header)) + 64, _DATA_ALIGN)
    header.size = header.data_at + offset
    return header


def _write_tensor(file: int, tensor: Tensor, at: int, pause: Callable[[], None]) -> int:
    checksum = 0
    content = tensor.contiguous().flatten().view(torch.uint8).numpy().data
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        checksum = zlib.crc32(piece, checksum)
        written = 0
        while written < len(piece):
            written += os.pwrite(file, piece[written:], at + start + written)
        pause()
    return checksum


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_header(file: int) -> tuple[_Header, bytes]:
    preamble = os.pread(file, _PREAMBLE.size, 0)
    if len(preamble) < _PREAMBLE.size:
        raise DamagedFile("it is too short")
    mark, digest, length, boot = _PREAMBLE.unpack(preamble)
    size = os.fstat(file).st_size
    text = os.pread(file, length, _HEADER_AT) if length <= size else b""
    if mark != _MARK or hashlib.sha256(text).digest() != digest:
        raise DamagedFile("its header is not as it was written")
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.DecodeError as error:
        raise DamagedFile(f"its header is of another form ({error})") from None
    if header.size != size:
        raise DamagedFile(f"it has {size:,} bytes instead of {header.size:,}")
    return header, boot


def _check(content: memoryview, data_at: int, tensors: list[_StoredTensor]) -> None:
    def differs(stored: _StoredTensor) -> bool:
        start = data_at + stored.offset
        return f"{zlib.crc32(content[start : start + stored.nbytes]):08x}" != stored.checksum

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        if any(pool.map(differs, tensors)):
            raise DamagedFile("its contents are not as they were written")


def _weight(stored: _StoredWeight, mapped: mmap.mmap, data_at: int) -> NativeWeight:
    found: dict[str, Any] = {name: _tensor(each, mapped, data_at) for name, each in stored.tensors.items()}
    try:
        return KINDS[stored.kind](**(stored.plain | found))
    except (KeyError, TypeError) as error:
        raise DamagedFile(f"it holds weights of another form ({error})") from None


def _tensor(stored: _StoredTensor, mapped: mmap.mmap, data_at: int) -> Tensor:
    dtype = getattr(torch, stored.dtype)
    with warnings.catch_warnings():
        # Torch warns of memory that cannot be written, which is the point here.
        warnings.simplefilter("ignore", UserWarning)
        flat = torch.frombuffer(mapped, dtype=torch.uint8, count=stored.nbytes, offset=data_at + stored.offset)
    return flat.view(dtype).view(stored.shape)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _boot() -> bytes:
    """The name that the system gave itself when it started."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
