"""Cells in CPU memory for the KV blocks of a GPU.

Blocks are gathered into a staging buffer on the GPU and copied to pinned memory on a separate stream, so that one copy
moves neighbouring cells. That stream waits for earlier steps; the next step waits only until the last block was read,
while the rest of a save is still being copied.
"""

from collections.abc import Iterator, Sequence

import numpy
import torch
from torch import Tensor

from ....kernels.arrays import Array, DType, address, fresh_zeros
from ....kernels.torch.arrays import array_of, numpy_dtype, tensor_of
from ...kv.host_memory import use_huge_pages
from ...kv.second_tier import HostTier, Pairs, SecondTier
from .device import TensorDevice

STAGING_BYTES = 64 << 20  # on the card; a bus copies them in milliseconds


def pinned_zeros(size: tuple[int, ...], dtype: DType) -> Array:
    """Zeros that a GPU can read and write itself; torch's own function may take twice the memory."""
    memory = fresh_zeros(size, dtype)
    use_huge_pages(memory)
    error = torch.cuda.cudart().cudaHostRegister(address(memory), memory.nbytes, 0)
    if int(error):
        raise MemoryError(f"pinning failed with CUDA error {int(error)}")
    return memory


def second_tier(parts: Sequence[Tensor], num_cells: int) -> SecondTier:
    """The tier for blocks in tensors on any device."""
    return StreamedTier(parts, num_cells) if parts[0].is_cuda else HostTier(list(map(array_of, parts)), num_cells)


class StagedTier(SecondTier):
    """Copies through a bounded buffer on the blocks' device, which joins many small pieces into few large copies."""

    fresh_memory = staticmethod(fresh_zeros)

    def __init__(self, parts: Sequence[Tensor], num_cells: int, staging_bytes: int = STAGING_BYTES) -> None:
        """`parts`: of the blocks, each [layers, num_blocks, …]."""
        self.num_cells = num_cells
        self.device = parts[0].device
        self._blocks = [_words(part).transpose(0, 1) for part in parts]  # [num_blocks, layers, words]
        self.cells = [self.fresh_memory((num_cells, *each.shape[1:]), numpy_dtype(each.dtype)) for each in self._blocks]
        self._cells = list(map(tensor_of, self.cells))
        block_bytes = sum(each[0].nbytes for each in self._blocks)
        self._width = max(1, min(num_cells, staging_bytes // block_bytes))  # cells in the buffer
        self._staging = [each.new_empty((self._width, *each.shape[1:])) for each in self._blocks]

    def move(self, saves: Pairs, loads: Pairs) -> None:
        for piece in self._pieces(saves):
            self._gather(self._put(piece[:, 0]))
            for cells, staging in zip(self._cells, self._staging, strict=True):
                for index, cell, count in _contiguous_cells(piece[:, 1]):
                    cells[cell : cell + count].copy_(staging[index : index + count], non_blocking=True)
        for piece in self._pieces(loads):
            for cells, staging in zip(self._cells, self._staging, strict=True):
                for index, cell, count in _contiguous_cells(piece[:, 0]):
                    staging[index : index + count].copy_(cells[cell : cell + count], non_blocking=True)
            self._scatter(self._put(piece[:, 1]))

    def _put(self, numbers: Array) -> Tensor:
        return TensorDevice(self.device).put(numbers.copy())

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

    def __init__(self, parts: Sequence[Tensor], num_cells: int) -> None:
        super().__init__(parts, num_cells)
        self._stream = torch.cuda.Stream(self.device)
        self._last_touch = torch.cuda.Event()

    def move(self, saves: Pairs, loads: Pairs) -> None:
        computing = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            super().move(saves, loads)
        computing.wait_event(self._last_touch)

    def settle(self) -> None:
        self._stream.synchronize()

    def _gather(self, block_ids: Tensor) -> None:
        super()._gather(block_ids)
        self._last_touch.record()

    def _scatter(self, block_ids: Tensor) -> None:
        super()._scatter(block_ids)
        self._last_touch.record()


def _words(part: Tensor) -> Tensor:
    """View a tensor of any type as [layers, num_blocks, words] to move it."""
    flat = part.view(*part.shape[:2], -1).view(torch.uint8)
    return flat.view(torch.int64) if flat.shape[2] % 8 == 0 else flat


def _contiguous_cells(cells: Array) -> Iterator[tuple[int, int, int]]:
    """Runs of neighbouring cells: (index of the first, its cell, how many)."""
    starts = numpy.flatnonzero(numpy.diff(cells, prepend=cells[0] - 2) != 1)
    counts = numpy.diff(starts, append=len(cells))
    return zip(starts.tolist(), cells[starts].tolist(), counts.tolist(), strict=True)
