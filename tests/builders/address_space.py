"""Bounds this process to so much more address space for a while: what takes more raises a MemoryError."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.protocol.processes.bounded_process import address_space


@contextmanager
def address_space_limit(more_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
