"""How a worker's processes import torch and all that needs it: without looking for garbage meanwhile.

Imported modules leave hardly any, and torch's many objects would be looked through a hundred times, which takes a
quarter of the whole import.
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
