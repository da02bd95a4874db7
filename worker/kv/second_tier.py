"""Cells in CPU memory that hold copies of KV blocks, and the copies to and from them.

A cell holds one block's bytes of all layers, one after another. Blocks on a CPU are copied directly; those of a GPU
have a tier of their own (`../backends/torch/staged_tier.py`).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy

from ...kernels.arrays import Array, fresh_zeros

Pairs = Array  # int64 [moves, 2]


class SecondTier(Protocol):
    """Cells for blocks that are also in CPU memory."""

    num_cells: int
    cells: Sequence[Array]  # by part of the blocks

    def move(self, saves: Pairs, loads: Pairs) -> None:
        """Copy blocks into cells (pairs of block, cell), then cells into blocks (pairs of cell, block)."""

    def settle(self) -> None:
        """Wait until the moves are done, so that the host may use the cells."""
        return


class HostTier(SecondTier):
    """Cells for blocks of a CPU."""

    def __init__(self, parts: Sequence[Array], num_cells: int) -> None:
        """`parts`: of the blocks, each [layers, num_blocks, …]."""
        self.num_cells = num_cells
        self._blocks = [_words(part).swapaxes(0, 1) for part in parts]  # [num_blocks, layers, words]
        self.cells = [fresh_zeros((num_cells, *each.shape[1:]), each.dtype) for each in self._blocks]

    def move(self, saves: Pairs, loads: Pairs) -> None:
        for block, cell in saves.tolist():
            for blocks, cells in zip(self._blocks, self.cells, strict=True):
                cells[cell] = blocks[block]
        for cell, block in loads.tolist():
            for blocks, cells in zip(self._blocks, self.cells, strict=True):
                blocks[block] = cells[cell]


def _words(part: Array) -> Array:
    """View an array of any type as [layers, num_blocks, words] to move it."""
    flat = part.reshape(*part.shape[:2], -1, copy=False).view(numpy.uint8)
    return flat.view(numpy.int64) if flat.shape[2] % 8 == 0 else flat
