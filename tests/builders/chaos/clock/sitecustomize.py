"""Lets a test move the wall clock of the processes under test: `time.time` adds the offset that lies in a mapped file.

Python imports a module of this name at its start where it lies on the search path. The monotonic clock is left alone.
"""

import mmap
import os
import struct
import time
from contextlib import suppress

with suppress(KeyError, OSError, ValueError), open(os.environ["PENSTOCK_CHAOS_CLOCK"], "rb") as file:
    _offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    _unmoved = time.time
    time.time = lambda: _unmoved() + struct.unpack("d", _offset[:8])[0]
