"""Represents patches that attend to one another as rows of a step, with keys and values in the encoder's memory."""

from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ..steps.block_tables import BlockRows

BLOCK_SIZE = 32  # patches


class LayoutRows(NamedTuple):
    """R rows of patches, each a run of neighbours; the first and last row may be partial."""

    query_starts: numpy.ndarray  # int32 [R + 1]
    context_lengths: numpy.ndarray  # int32 [R]
    blocks: BlockRows
    lasts: Tensor  # int64 [P]: index within the row of the last patch that each patch sees: the row's last
    num_blocks: int

    def between(self, first: int, end: int) -> "LayoutRows":
        """The rows of these patches only; each sees as many patches as before."""
        begin = numpy.searchsorted(self.query_starts, first, "right") - 1
        until = numpy.searchsorted(self.query_starts, end, "left")
        tables, slots = self.blocks
        return LayoutRows(
            query_starts=numpy.clip(self.query_starts[begin : until + 1], first, end) - numpy.int32(first),
            context_lengths=self.context_lengths[begin:until],
            blocks=BlockRows(tables[begin:until], slots[first:end]),
            lasts=self.lasts[first:end],
            num_blocks=self.num_blocks,
        )


def layout_rows(lengths: list[int]) -> LayoutRows:
    """Lay out rows; each has its own consecutive blocks."""
    counts = numpy.array(lengths, numpy.int64)
    blocks = -(-counts // BLOCK_SIZE)
    starts, first_blocks = numpy.cumsum(counts) - counts, numpy.cumsum(blocks) - blocks
    row = numpy.repeat(numpy.arange(len(counts)), counts)
    index = numpy.arange(len(row)) - starts[row]
    columns = numpy.arange(blocks.max())
    tables = numpy.where(columns < blocks[:, None], first_blocks[:, None] + columns, 0).astype(numpy.int32)
    return LayoutRows(
        query_starts=numpy.append(starts, len(row)).astype(numpy.int32),
        context_lengths=counts.astype(numpy.int32),
        blocks=BlockRows(torch.from_numpy(tables), torch.from_numpy(first_blocks[row] * BLOCK_SIZE + index)),
        lasts=torch.from_numpy(counts[row] - 1),
        num_blocks=int(blocks.sum()),
    )
