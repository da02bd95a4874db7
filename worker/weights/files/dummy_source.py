"""Makes up weights, to measure a model from its config alone."""

import math
import re
import zlib
from collections.abc import Iterable
from functools import cache

import numpy

from ....kernels.arrays import FLOAT32, Array
from ..piece import Part, index_of

_FACTORS = re.compile(r"norm(_\d)?\.weight$|\.norms\.|layer_scalar$|router\.(scale|per_expert_scale)$")  # set to 1
_NUM_DRAWN = 1 << 20  # which are repeated


class DummySource:
    """A source of weights that depend only on the name, whatever the number of ranks."""

    def __init__(self, absent: Iterable[str] = ()) -> None:
        self.absent = tuple(absent)  # suffixes of names that this model does not have
        self.bytes_read = 0

    def has(self, name: str) -> bool:
        return not name.endswith(self.absent)

    @property
    def names(self) -> Iterable[str]:
        return ()

    def read(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        if _FACTORS.search(name):
            found = numpy.ones(shape, FLOAT32)
        else:
            # Drawing each number would take longer than packing it.
            start = zlib.crc32(name.encode()) % (_NUM_DRAWN // 2)
            found = numpy.resize(_drawn()[start : start + math.prod(shape)], shape)
        return self._counted(found[index_of(part)])

    def matrix(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        return self.read(name, shape, part)

    def octets(self, name: str, shape: tuple[int, ...], part: Part | None = None) -> Array:
        """Bytes for exponents of 2, such that values have a realistic size."""
        generator = numpy.random.default_rng(zlib.crc32(name.encode()))
        first, beyond = (119, 122) if name.endswith("_scales") else (0, 256)
        return self._counted(generator.integers(first, beyond, shape, numpy.uint8)[index_of(part)])

    def group_size(self, module: str) -> int:
        return 0

    def pass_over(self, name: str) -> None:
        """Do nothing: there are no leftovers."""

    def leftovers(self) -> list[str]:
        return []

    def _counted(self, found: Array) -> Array:
        self.bytes_read += found.nbytes
        return found


@cache
def _drawn() -> Array:
    return numpy.random.default_rng(0).uniform(-0.035, 0.035, _NUM_DRAWN).astype(FLOAT32)
