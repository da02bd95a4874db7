"""Which variants of the native kernels are held to their word: the best and the plainest at once, all with `-m long`.

A variant that is not there yet is compiled when it is loaded, which takes half a minute.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.kernels.cpu.library import available_variants

# The best variant that this processor executes, and the plainest.
ENDS = tuple(dict.fromkeys((*available_variants()[:1], *available_variants()[-1:])))


def quick_or_long(variants: Sequence[str]) -> list[Any]:
    """As parameters of tests: those between the ends are for `-m long`."""
    return [name if name in ENDS else pytest.param(name, marks=pytest.mark.long) for name in variants]
