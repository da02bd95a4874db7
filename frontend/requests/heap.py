"""Returns freed memory to the system, where the C library is glibc.

glibc keeps what was freed for what is allocated next; where long and short blocks have lain among one another, that is
as much as there ever was at once. Other C libraries are left alone.
"""

import ctypes
import threading
from contextlib import suppress

_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 256 << 10  # of malloc.h, and bytes


def give_large_blocks_back() -> None:
    """Have large blocks returned as soon as they are freed, from now on."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)


def trim() -> None:
    """Return what is free now. It takes some milliseconds, so it runs in a thread, if one can be started."""
    with suppress(RuntimeError):
        threading.Thread(target=_trim, name="penstock-trim", daemon=True).start()


def _trim() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
