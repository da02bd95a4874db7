"""Turns a panic of the tokenizers library, which is no `Exception` to Python, into one of our errors.

A tokenizer's file can bring the library's Rust code to an end that its authors did not foresee, for all texts or for
one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol.errors import PenstockError

_PANIC = "PanicException"  # its module cannot be imported


@contextmanager
def panics_as(kind: type[PenstockError], what: str) -> Iterator[None]:
    """`what` could not be done; the library's own words follow."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise kind(f"{what}: the tokenizers library failed ({error}).") from None
