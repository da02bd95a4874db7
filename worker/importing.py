"""Imports modules with garbage collection switched off.

Imports create hardly any garbage, and the collector would scan all of their objects again and again: torch's a hundred
times, a quarter of the time of its import.
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
