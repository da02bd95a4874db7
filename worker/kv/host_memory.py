"""Large memory on the CPU: allocated without touching it, then touched by a thread in the background.

The first touch of fresh memory is the most expensive part of writing it: seconds per GiB on some machines. The
background thread writes nothing; it asks the kernel to populate the pages, so that steps may use them meanwhile.
"""

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from ...kernels.arrays import Array, address

_PIECE = 2 << 20  # a huge page
_PAUSE = 9  # times as long as a piece took, while steps are running
_HUGE_PAGES, _POPULATE_WRITE = 14, 23  # of madvise(2); the latter since Linux 5.14


def use_huge_pages(memory: Array) -> None:
    _madvise(address(memory), memory.nbytes, _HUGE_PAGES)


class BackgroundTouch:
    """Touches ranges of CPU memory, from `start()` until done or stopped.

    It touches a piece of each range in turn, because the beginnings are used first. While steps are running, it takes a
    tenth of a core.
    """

    def __init__(
        self,
        stretches: Iterable[Array],
        on_progress: Callable[[int], None],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_progress` gets the remaining bytes, 0 at the end; `is_busy` tells whether steps are running."""
        self._stretches = [_whole_pages(stretch) for stretch in stretches]
        self._on_progress = on_progress
        self._is_busy = is_busy
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._touch_all, name="touch", daemon=True)

    def start(self, after: float = 0.0) -> None:
        """Begin after so many seconds."""
        self._after = after
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _touch_all(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # only this thread, on Linux
        if self._is_stopped.wait(self._after):
            return
        for stretch in self._stretches:
            _madvise(stretch.start, len(stretch), _HUGE_PAGES)
        left = sum(len(stretch) for stretch in self._stretches)
        for piece in self._pieces():
            began = time.perf_counter()
            if not _madvise(piece.start, len(piece), _POPULATE_WRITE):
                return
            left -= len(piece)
            self._on_progress(left)
            pause = _PAUSE * (time.perf_counter() - began) if self._is_busy() else 0
            if self._is_stopped.wait(pause):
                return
        self._on_progress(0)

    def _pieces(self) -> Iterator[range]:
        """The first piece of each range, then the second of each, and so on."""
        most = max((len(stretch) for stretch in self._stretches), default=0)
        for offset in range(0, most, _PIECE):
            for stretch in self._stretches:
                if piece := stretch[offset : offset + _PIECE]:
                    yield piece


def _whole_pages(memory: Array) -> range:
    """The range's addresses without its partial pages, which others touch too."""
    start = address(memory)
    begin, end = _page_at(start + mmap.PAGESIZE - 1), _page_at(start + memory.nbytes)
    return range(begin, max(begin, end))


def _page_at(address: int) -> int:
    return address // mmap.PAGESIZE * mmap.PAGESIZE


_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _madvise(address: int, length: int, advice: int) -> bool:
    """Return whether the kernel supports this; otherwise pages are populated on first use."""
    return _libc.madvise(address, length, advice) == 0
