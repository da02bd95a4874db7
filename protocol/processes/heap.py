"""Measures this process's heap, which is glibc's, and gives free memory back to the system."""

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

# glibc keeps freed memory for later allocations. If long and short blocks were interleaved, that is as much as the
# peak.
_MMAP_THRESHOLD = -3  # of malloc.h


class _Figures(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


@cache
def _mallinfo() -> Callable[[], _Figures] | None:
    with suppress(OSError, AttributeError):
        found = ctypes.CDLL(None).mallinfo2
        found.restype = _Figures
        return found
    return None  # another libc, or glibc before 2.33


def heap_bytes() -> int:
    """Bytes allocated now by all threads; 0 if that is unknown."""
    if (mallinfo := _mallinfo()) is None:
        return 0
    figures = mallinfo()
    return int(figures.uordblks + figures.hblkhd)


def give_large_blocks_back(least_bytes: int = 256 << 10) -> None:
    """From now on, return large blocks to the system as soon as they are freed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, least_bytes)


def trim_heap() -> None:
    """Return free memory to the system now. It takes milliseconds, so it runs in a thread, if one can be started."""
    with suppress(RuntimeError):
        threading.Thread(target=_trim, name="penstock-trim", daemon=True).start()


def _trim() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
