"""What computes an encoder's stages for one medium at a time: the interface, and its form that computes on tensors."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...kernels import Rows, TokenRotation
from ..kv.kv_cache import KVCache, KVShape
from ..steps.batch import LayerStep
from .arrangement import Arrangement
from .encoder import Encoder
from .layout_rows import BLOCK_SIZE, LayoutRows, layout_rows


class EncoderPass(Protocol):
    """One medium's stages. `begin` comes first, and again after another medium's."""

    @property
    def encoder(self) -> Encoder: ...

    def begin(self, arrangement: Arrangement, rotation: TokenRotation | None) -> None: ...

    def embed(self, patches: Tensor) -> None:
        """Make the stream of patches [P, patch_numbers]."""

    @property
    def stream(self) -> Tensor:
        """[P, hidden]: behind the last stage, to be read and written, until another medium begins."""

    def layer(self, number: int) -> None: ...

    def merged(self, part: int) -> Tensor:
        """[rows, out] of the stream, until the next stage."""


@dataclass
class TensorInputs:
    """What layers read, as torch's operations see it."""

    memory: KVCache
    rows: list[Rows]
    rotation: TokenRotation | None

    def of_layout(self, layout: int) -> LayerStep:
        return LayerStep(self.memory.of_layer(0), self.rows[layout], self.rotation)


class TensorPass:
    """Computes at once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.stream = torch.empty(0)
        self._memory: KVCache | None = None
        self._inputs: TensorInputs
        self._arrangement: Arrangement

    @torch.inference_mode()
    def begin(self, arrangement: Arrangement, rotation: TokenRotation | None) -> None:
        layouts = [layout_rows(lengths) for lengths in arrangement.layouts]
        placement, config = self.encoder.placement, self.encoder.config
        num_blocks = max(layout.num_blocks for layout in layouts)
        if self._memory is None or self._memory.num_blocks < num_blocks:
            shape = KVShape(1, config.num_heads, config.padded_head_dim)
            self._memory = KVCache.allocate(shape, num_blocks, BLOCK_SIZE, placement.activations, placement.device)
        memory = self._memory
        turned = rotation and TokenRotation(*(each.to(placement.activations) for each in rotation[:2]))
        self._arrangement = arrangement
        self.stream = torch.empty(
            arrangement.num_patches, config.hidden_size, dtype=placement.activations, device=placement.device
        )
        self._inputs = TensorInputs(memory, [_rows(each, memory, placement.device) for each in layouts], turned)

    @torch.inference_mode()
    def embed(self, patches: Tensor) -> None:
        self.stream = self.encoder.patch(patches.to(self.encoder.placement.activations))

    @torch.inference_mode()
    def layer(self, number: int) -> None:
        self.stream = self.encoder.layer(number, self.stream, self._inputs)

    @torch.inference_mode()
    def merged(self, part: int) -> Tensor:
        merger = self.encoder.mergers[part]
        found: Tensor = merger.of_patches(self.stream)
        for stage in merger.stages:
            found = stage.compute(stage.join(found, self._arrangement))
        return found


def _rows(layout: LayoutRows, memory: KVCache, device: torch.device) -> Rows:
    tables, slots = (each.to(device) for each in layout.blocks)
    starts, lengths = layout.query_starts.tolist(), layout.context_lengths.tolist()
    return Rows(starts, lengths, tables, slots, memory.scratch, seen_ends=layout.lasts + 1)
