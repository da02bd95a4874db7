"""Tensors whose memory ends, or begins, where a process may no longer look: whoever reads beyond ends it at once."""

import ctypes
import mmap
from typing import Literal

import torch
from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOT_AT_ALL = 0  # PROT_NONE
_KEPT: list[mmap.mmap] = []  # tensors don't keep what they are made on

Side = Literal["behind", "before"]


def guarded(tensor: Tensor, side: Side) -> Tensor:
    """A contiguous copy with such a page right behind its last byte, or right before its first one."""
    if not tensor.nbytes:
        return tensor.clone()
    page = mmap.PAGESIZE
    size = -(-tensor.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _LIBC.mprotect(ctypes.c_void_p(start + (size if side == "behind" else 0)), page, _NOT_AT_ALL):
        raise OSError(ctypes.get_errno(), "mprotect")
    _KEPT.append(memory)
    offset = size - tensor.nbytes if side == "behind" else page
    copy = torch.frombuffer(memory, dtype=torch.uint8, count=tensor.nbytes, offset=offset)
    return copy.view(tensor.dtype).view(tensor.shape).copy_(tensor)
