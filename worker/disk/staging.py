"""A thread's way between the disk and the blocks of a rank: a cell for each group of layers, and the copies."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy

from ...kernels.arrays import Array
from ..kv.second_tier import SecondTier

_NO_PAIRS = numpy.empty((0, 2), numpy.int64)
_ONLY_CELL = 0


class Staging:
    def __init__(self, tiers: Sequence[SecondTier], computing: Callable[[], AbstractContextManager[object]]) -> None:
        """`tiers`: one for each group, with a single cell."""
        self._tiers = tiers
        self._computing = computing
        self._parts = [[cells[_ONLY_CELL] for cells in tier.cells] for tier in tiers]

    @property
    def num_groups(self) -> int:
        return len(self._tiers)

    def block_bytes(self, group: int) -> int:
        return sum(part.nbytes for part in self._parts[group])

    def save(self, group: int, block: int) -> list[Array]:
        """Copy a block into the cell, and return that."""
        with self._computing():
            self._tiers[group].move(numpy.array([[block, _ONLY_CELL]]), _NO_PAIRS)
            self._tiers[group].settle()
        return self._parts[group]

    def cell(self, group: int) -> list[Array]:
        return self._parts[group]

    def load(self, group: int, block: int) -> None:
        """Copy the cell into a block."""
        with self._computing():
            self._tiers[group].move(_NO_PAIRS, numpy.array([[_ONLY_CELL, block]]))
            self._tiers[group].settle()
