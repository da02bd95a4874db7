"""Imports torch and the modules that need it, with garbage collection switched off.

Imports create hardly any garbage, and the collector would scan torch's many objects a hundred times, a quarter of the
import's time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
