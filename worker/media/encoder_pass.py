"""Computes an encoder's stages for one medium at a time: the interface, and its version for tensors."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor

from ...kernels import HostRows, TokenRotation
from ...kernels.torch.arrays import torch_dtype
from ..kv.kv_cache import KVShape
from ..kv.tensor_cache import KVCache
from ..steps.batch import LayerStep
from ..weights.weights import Rows
from .arrangement import Arrangement
from .encoder import Encoder
from .layout_rows import BLOCK_SIZE, LayoutRows, layout_rows


class EncoderPass(ABC):
    """The memory of a medium that is being encoded, and its stages for some of its patches."""

    stream: Tensor  # [P, hidden]: after the latest stage
    queries: Tensor  # [P, heads × head_dim], of a layer in progress
    _layouts: list[LayoutRows]
    _rotation: TokenRotation | None

    def __init__(self, encoder: Encoder, dtype: torch.dtype) -> None:
        """`dtype`: of the stream."""
        self.encoder = encoder
        self._dtype = dtype
        self.end()

    def begin(self, arrangement: Arrangement, rotation: TokenRotation | None) -> None:
        config, device = self.encoder.config, self.encoder.placement.device
        num_patches, width = arrangement.num_patches, config.num_heads * config.padded_head_dim
        self.stream = torch.empty(num_patches, config.hidden_size, dtype=self._dtype, device=device)
        self.queries = torch.empty(num_patches, width, dtype=self._dtype, device=device)
        self._layouts, self._rotation = [layout_rows(lengths) for lengths in arrangement.layouts], rotation
        self._make_room(max(layout.num_blocks for layout in self._layouts))

    def end(self) -> None:
        """Release the medium's memory."""
        self.stream = self.queries = torch.empty(0)
        self._layouts, self._rotation = [], None

    def embed(self, first: int, patches: Tensor, positions: Tensor | None) -> None:
        """Make the stream of patches [P, patch_numbers], beginning at this patch."""
        part = self.stream[first : first + len(patches)]
        part.copy_(self._embedded(patches))
        if positions is not None:
            part.add_(positions)

    def project(self, layer: int, first: int, end: int) -> None:
        """Make queries, keys and values of these patches."""
        self.queries[first:end] = self._projected(layer, first, end)

    def attend(self, layer: int, first: int, end: int) -> None:
        """Take these patches' stream through the rest of the layer, once all are projected."""
        self.stream[first:end] = self._attended(layer, first, end)

    @abstractmethod
    def merged(self, part: int, x: Tensor, row_frames: int) -> Tensor:
        """Merge the stream of patches, [P, hidden], row by row, into [rows, out]."""

    @abstractmethod
    def _make_room(self, num_blocks: int) -> None:
        """Allocate memory for keys and values."""

    @abstractmethod
    def _embedded(self, patches: Tensor) -> Tensor: ...

    @abstractmethod
    def _projected(self, layer: int, first: int, end: int) -> Tensor: ...

    @abstractmethod
    def _attended(self, layer: int, first: int, end: int) -> Tensor: ...


class TensorPass(EncoderPass):
    """Computes with operations on tensors."""

    def __init__(self, encoder: Encoder) -> None:
        self._memory: KVCache | None = None
        super().__init__(encoder, torch_dtype(encoder.placement.activations))

    @torch.inference_mode()
    def merged(self, part: int, x: Tensor, row_frames: int) -> Tensor:
        merger = self.encoder.mergers[part]
        found = merger.of_patches(Rows(x))
        for stage in merger.stages:
            found = stage.compute(Rows(stage.join(_tensor(found), row_frames)))
        return _tensor(found)

    def _make_room(self, num_blocks: int) -> None:
        if self._memory is None or self._memory.num_blocks < num_blocks:
            placement, config = self.encoder.placement, self.encoder.config
            shape = KVShape(1, config.num_heads, config.padded_head_dim)
            self._memory = KVCache.allocate(shape, num_blocks, BLOCK_SIZE, placement.activations, placement.device)

    @torch.inference_mode()
    def _embedded(self, patches: Tensor) -> Tensor:
        return _tensor(self.encoder.patch(Rows(patches.to(self._dtype))))

    @torch.inference_mode()
    def _projected(self, layer: int, first: int, end: int) -> Tensor:
        own = self.encoder.layers[layer]
        found = own.project(Rows(self.stream[first:end]), self._step(own.layout, first, end))
        return _tensor(found).flatten(1)

    @torch.inference_mode()
    def _attended(self, layer: int, first: int, end: int) -> Tensor:
        own, heads = self.encoder.layers[layer], self.encoder.config.num_heads
        query = self.queries[first:end].unflatten(1, (heads, -1))
        stream = own.attend(Rows(self.stream[first:end]), Rows(query), self._step(own.layout, first, end))
        return _tensor(stream)

    def _step(self, layout: int, first: int, end: int) -> LayerStep:
        memory = cast(KVCache, self._memory)
        rows = _rows(self._layouts[layout].between(first, end), memory, self.encoder.placement.device)
        rotation = self._rotation and TokenRotation(*(each[first:end].to(self._dtype) for each in self._rotation[:2]))
        return LayerStep(memory.of_layer(0), rows, rotation)


def _tensor(rows: Rows) -> Tensor:
    """View rows as the tensor that they are when operations compute at once."""
    return cast(Tensor, rows)


def _rows(layout: LayoutRows, memory: KVCache, device: torch.device) -> HostRows:
    tables, slots = (each.to(device) for each in layout.blocks)
    starts, lengths = layout.query_starts.tolist(), layout.context_lengths.tolist()
    return HostRows(starts, lengths, tables, slots, memory.scratch, seen_ends=layout.lasts + 1)
