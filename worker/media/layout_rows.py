"""Represents patches that attend to one another as rows of a step, with keys and values in the encoder's memory."""

from typing import NamedTuple

import numpy

from ...kernels.arrays import Array

BLOCK_SIZE = 32  # patches


class LayoutRows(NamedTuple):
    """R rows of patches, each a run of neighbours; the first and last row may be partial."""

    query_starts: Array  # int32 [R + 1]
    context_lengths: Array  # int32 [R]
    block_tables: Array  # int32 [R, most blocks]
    kv_slots: Array  # int64 [P]
    lasts: Array  # int64 [P]: index within the row of the last patch that each patch sees: the row's last
    num_blocks: int

    def between(self, first: int, end: int) -> "LayoutRows":
        """The rows of these patches only; each sees as many patches as before."""
        begin = numpy.searchsorted(self.query_starts, first, "right") - 1
        until = numpy.searchsorted(self.query_starts, end, "left")
        return LayoutRows(
            query_starts=numpy.clip(self.query_starts[begin : until + 1], first, end) - numpy.int32(first),
            context_lengths=self.context_lengths[begin:until],
            block_tables=self.block_tables[begin:until],
            kv_slots=self.kv_slots[first:end],
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
        block_tables=tables,
        kv_slots=first_blocks[row] * BLOCK_SIZE + index,
        lasts=counts[row] - 1,
        num_blocks=int(blocks.sum()),
    )
