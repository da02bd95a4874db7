"""Which variants of the native kernels are held to their word: the best and the plainest at once, all with `-m long`.

A variant that is not there yet is compiled when it is loaded, which takes half a minute: quick tests do without, but
for the processor's best one, which whatever loads the kernels needs.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.kernels.cpu.build import compiler
from penstock.kernels.cpu.library import Library, is_compiled, load
from penstock.kernels.cpu.variants import executable_variants


def available_variants() -> tuple[str, ...]:
    """The variants that this processor can execute and that are compiled or can be, best first; or the forced one."""
    can_compile = compiler() is not None
    forced = os.environ.get("PENSTOCK_CPU_VARIANT")
    wanted = (name for name in executable_variants() if forced in (None, "", name))
    return tuple(name for name in wanted if can_compile or is_compiled(name))


_AVAILABLE = available_variants()
# The best variant that this processor executes, and the plainest that is made.
ENDS = tuple(dict.fromkeys((*_AVAILABLE[:1], *[name for name in _AVAILABLE if is_compiled(name)][-1:])))
needs_variant = pytest.mark.skipif(not _AVAILABLE, reason="this processor executes none of the native variants")


def computed_variant(library: Library) -> str:
    """The variant whose code a library runs, be it emulated (builders/emulated_kernels.py)."""
    return os.environ.get("PENSTOCK_TEST_EMULATED", library.variant)


def quick_or_long(variants: Sequence[str]) -> list[Any]:
    """As parameters of tests: those between the ends are for `-m long`."""
    return [name if name in ENDS else pytest.param(name, marks=pytest.mark.long) for name in variants]


@contextmanager
def forced(variant: str) -> Iterator[None]:
    """Libraries that are loaded meanwhile are of this variant, or none is for "none"."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PENSTOCK_CPU_VARIANT", variant)
            load.cache_clear()
            yield
    finally:
        load.cache_clear()
