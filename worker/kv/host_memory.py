"""Large memory on the CPU: allocated without touching it, then touched by a thread in the background.

The first touch of fresh memory is the dearest part of writing it: seconds for a GiB on some machines. The background
thread writes nothing, it asks the kernel to populate the pages, so that steps may use them meanwhile.
"""

import ctypes
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_PIECE = 8 << 20
_PAUSE = 0.001  # seconds after each piece
_HUGE_PAGES, _POPULATE_WRITE = 14, 23  # of madvise(2); the latter since Linux 5.14


def fresh_zeros(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros whose pages the kernel hands out as they are touched; `torch.zeros` would touch them all at once."""
    memory = mmap.mmap(-1, math.prod(size) * dtype.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(size)


def pinned_zeros(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros that a GPU can read and write by itself; torch's own way may take twice what is asked for."""
    tensor = fresh_zeros(size, dtype)
    _madvise(tensor.data_ptr(), tensor.nbytes, _HUGE_PAGES)
    error = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0)
    if int(error):
        raise MemoryError(f"pinning failed with CUDA error {int(error)}")
    return tensor


class BackgroundTouch:
    """Touches tensors in the CPU's memory, from `start()` until done or stopped."""

    def __init__(self, tensors: Iterable[Tensor], on_progress: Callable[[int], None]) -> None:
        """`on_progress` hears how many bytes are left, and 0 at the end."""
        self._ranges = [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors]
        self._on_progress = on_progress
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._touch_all, name="touch", daemon=True)

    def start(self, after: float = 0.0) -> None:
        """Begin so many seconds from now."""
        self._after = after
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _touch_all(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # this thread's alone on Linux
        if self._is_stopped.wait(self._after):
            return
        left = sum(length for _, length in self._ranges)
        for address, length in self._ranges:
            # Whole pages only: what shares a page with something else is touched by that.
            start, end = _page_at(address + mmap.PAGESIZE - 1), _page_at(address + length)
            _madvise(start, max(0, end - start), _HUGE_PAGES)
            for piece in range(start, end, _PIECE):
                if self._is_stopped.wait(_PAUSE) or not _madvise(piece, min(_PIECE, end - piece), _POPULATE_WRITE):
                    return
                left -= _PIECE
                self._on_progress(max(0, left))
        self._on_progress(0)


def _page_at(address: int) -> int:
    return address // mmap.PAGESIZE * mmap.PAGESIZE


_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _madvise(address: int, length: int, advice: int) -> bool:
    """Whether the kernel did it; an older one that can't leaves the pages to their first use."""
    return _libc.madvise(address, length, advice) == 0
