"""Cells in CPU memory that hold copies of KV blocks, and the copies to and from them.

A cell holds one block's bytes of all layers, one after another, so that one copy moves neighbouring cells. Blocks on a
CPU are copied directly. A GPU's blocks are gathered into a staging buffer on the GPU and copied to pinned memory on a
separate stream. That stream waits for earlier steps; the next step waits only until the last block was read, while the
rest of a save is still being copied.
"""

from collections.abc import Iterator, Sequence

import numpy
import torch
from torch import Tensor

from ..device import on_device
from .host_memory import fresh_zeros, pinned_zeros
from .kv_cache import Blocks
from .model_memory import ModelMemory

STAGING_BYTES = 64 << 20  # on the card; a bus copies them in milliseconds

Pairs = numpy.ndarray  # int64 [moves, 2]


def second_tiers(memory: ModelMemory, num_cells: Sequence[int]) -> "list[SecondTier]":
    """Make a tier for each group of layers, or none if there are no cells."""
    if not any(num_cells):
        return []
    return [_tier_of(blocks, count) for blocks, count in zip(memory.groups, num_cells, strict=True)]


def _tier_of(blocks: Blocks, num_cells: int) -> "SecondTier":
    return (StreamedTier if blocks.tensors[0].is_cuda else SecondTier)(blocks, num_cells)


class SecondTier:
    """Cells for blocks that are also in CPU memory."""

    fresh_memory = staticmethod(fresh_zeros)

    def __init__(self, kv: Blocks, num_cells: int) -> None:
        self.num_cells = num_cells
        self._blocks = [_words(tensor).transpose(0, 1) for tensor in kv.tensors]  # [num_blocks, layers, words]
        self.tensors = [self.fresh_memory((num_cells, *each.shape[1:]), each.dtype) for each in self._blocks]

    def move(self, saves: Pairs, loads: Pairs) -> None:
        """Copy blocks into cells (pairs of block, cell), then cells into blocks (pairs of cell, block)."""
        for block, cell in saves.tolist():
            for blocks, cells in zip(self._blocks, self.tensors, strict=True):
                cells[cell] = blocks[block]
        for cell, block in loads.tolist():
            for blocks, cells in zip(self._blocks, self.tensors, strict=True):
                blocks[block] = cells[cell]


class StagedTier(SecondTier):
    """Copies through a bounded buffer on the blocks' device, which joins many small pieces into few large copies."""

    def __init__(self, kv: Blocks, num_cells: int, staging_bytes: int = STAGING_BYTES) -> None:
        super().__init__(kv, num_cells)
        self.device = self._blocks[0].device
        self._width = max(1, staging_bytes // sum(each[0].nbytes for each in self.tensors))  # cells in the buffer
        self._staging = [
            torch.empty((self._width, *each.shape[1:]), dtype=each.dtype, device=self.device) for each in self.tensors
        ]

    def move(self, saves: Pairs, loads: Pairs) -> None:
        for piece in self._pieces(saves):
            self._gather(on_device(piece[:, 0].copy(), self.device))
            for cells, staging in zip(self.tensors, self._staging, strict=True):
                for index, cell, count in _contiguous_cells(piece[:, 1]):
                    cells[cell : cell + count].copy_(staging[index : index + count], non_blocking=True)
        for piece in self._pieces(loads):
            for cells, staging in zip(self.tensors, self._staging, strict=True):
                for index, cell, count in _contiguous_cells(piece[:, 0]):
                    staging[index : index + count].copy_(cells[cell : cell + count], non_blocking=True)
            self._scatter(on_device(piece[:, 1].copy(), self.device))

    def _pieces(self, pairs: Pairs) -> Iterator[Pairs]:
        """Split the pairs into pieces that fit into the buffer."""
        return (pairs[start : start + self._width] for start in range(0, len(pairs), self._width))

    def _gather(self, block_ids: Tensor) -> None:
        for blocks, staging in zip(self._blocks, self._staging, strict=True):
            torch.index_select(blocks, 0, block_ids, out=staging[: len(block_ids)])

    def _scatter(self, block_ids: Tensor) -> None:
        for blocks, staging in zip(self._blocks, self._staging, strict=True):
            blocks.index_copy_(0, block_ids, staging[: len(block_ids)])


class StreamedTier(StagedTier):
    """Cells for blocks of a GPU: copies run on a second stream, and the host doesn't wait."""

    fresh_memory = staticmethod(pinned_zeros)

    def __init__(self, kv: Blocks, num_cells: int) -> None:
        super().__init__(kv, num_cells)
        self._stream = torch.cuda.Stream(self.device)
        self._last_touch = torch.cuda.Event()

    def move(self, saves: Pairs, loads: Pairs) -> None:
        computing = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            super().move(saves, loads)
        computing.wait_event(self._last_touch)

    def _gather(self, block_ids: Tensor) -> None:
        super()._gather(block_ids)
        self._last_touch.record()

    def _scatter(self, block_ids: Tensor) -> None:
        super()._scatter(block_ids)
        self._last_touch.record()


def _words(tensor: Tensor) -> Tensor:
    """View a tensor of any type as [layers, num_blocks, words] to move it."""
    flat = tensor.view(*tensor.shape[:2], -1).view(torch.uint8)
    return flat.view(torch.int64) if flat.shape[2] % 8 == 0 else flat


def _contiguous_cells(cells: numpy.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs of neighbouring cells: (index of the first, its cell, how many)."""
    starts = numpy.flatnonzero(numpy.diff(cells, prepend=cells[0] - 2) != 1)
    counts = numpy.diff(starts, append=len(cells))
    return zip(starts.tolist(), cells[starts].tolist(), counts.tolist(), strict=True)
