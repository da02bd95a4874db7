"""Computes an encoder with operations on tensors."""

from typing import cast

import torch
from torch import Tensor

from ....kernels import HostRows, TokenRotation
from ....kernels.torch.arrays import tensor_of
from ...device import Device
from ...kv.kv_cache import KVShape
from ...media.encoder import Encoder
from ...media.encoder_pass import EncoderPass
from ...media.layout_rows import BLOCK_SIZE, LayoutRows
from ...media.positions import PatchRotation
from ...steps.batch import LayerStep
from ...weights.weights import Rows
from .device import torch_device
from .tensor_cache import KVCache


class TensorPass(EncoderPass):
    _memory: KVCache | None = None
    _rotation: TokenRotation | None

    def __init__(self, encoder: Encoder, device: Device) -> None:
        super().__init__(encoder, device, encoder.placement.activations)

    @torch.inference_mode()
    def merged(self, part: int, x: Tensor, row_frames: int) -> Tensor:
        merger = self.encoder.mergers[part]
        found = merger.of_patches(Rows(x))
        for stage in merger.stages:
            found = stage.compute(Rows(stage.join(_tensor(found), row_frames)))
        return _tensor(found)

    def _rotate_by(self, rotation: PatchRotation | None) -> None:
        by_heads = [self.device.put(each[:, None]) for each in rotation or ()]  # [P, 1, padded head_dim]
        self._rotation = (
            TokenRotation(*(self.device.cast(each, self._dtype) for each in by_heads)) if by_heads else None
        )

    def _make_room(self, num_blocks: int) -> None:
        if self._memory is None or self._memory.num_blocks < num_blocks:
            config = self.encoder.config
            shape = KVShape(1, config.num_heads, config.padded_head_dim)
            self._memory = KVCache.allocate(shape, num_blocks, BLOCK_SIZE, self._dtype, torch_device(self.device))

    @torch.inference_mode()
    def _embedded(self, patches: Tensor) -> Tensor:
        return _tensor(self.encoder.patch(Rows(self.device.cast(patches, self._dtype))))

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
        rows = self._rows(self._layouts[layout].between(first, end), memory)
        rotation = self._rotation and TokenRotation(*(each[first:end] for each in self._rotation[:2]))
        return LayerStep(memory.of_layer(0), rows, rotation)

    def _rows(self, layout: LayoutRows, memory: KVCache) -> HostRows:
        starts, lengths = layout.query_starts.tolist(), layout.context_lengths.tolist()
        tables, slots = self.device.put(layout.block_tables), self.device.put(layout.kv_slots)
        return HostRows(starts, lengths, tables, slots, memory.scratch, seen_ends=tensor_of(layout.lasts + 1))


def _tensor(rows: Rows) -> Tensor:
    """View rows as the tensor that they are when operations compute at once."""
    return cast(Tensor, rows)
