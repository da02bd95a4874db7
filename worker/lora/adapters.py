"""The LoRA adapters that a model can have: memory beside each product, and loading into it.

Layers reserve the memory while the model is built, for a number of adapters and a largest rank. An adapter is read
straight into its place, and steps that don't use it go on meanwhile. For the part of a product that a rank holds, an
adapter's `up` has the same outputs, or its `down` the same inputs.
"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...kernels import LoraConfig, LoraWeights, Operations
from ..weights.layouts.layout import Layout
from ..weights.piece import CheckpointPiece
from .gguf_lora import FindViews, GgufAdapter
from .lora_files import AdapterFiles, Target


@dataclass(frozen=True)
class _Place:
    """Where a projection's adapters go, or those of some of its outputs."""

    weights: LoraWeights
    part: int  # of the product that computes this projection
    pieces: list[CheckpointPiece]  # what it computes of it, one after another

    def put(self, adapter: int, files: AdapterFiles | GgufAdapter, name: str) -> None:
        downs, ups = zip(*(files.read(name, piece.part) for piece in self.pieces), strict=True)
        self.weights.put(adapter, self.part, downs[0], torch.cat(ups))


class AdapterBank:
    def __init__(self, config: LoraConfig, ops: Operations[Any, Any], layout: Layout, find_views: FindViews) -> None:
        """`layout` says what the model's family calls its projections, `find_views` what GGUF files call them."""
        self.config = config
        self.ops = ops
        self.layout, self.find_views = layout, find_views
        self._products: list[LoraWeights] = []
        self._places: dict[str, list[_Place]] = {}  # by the projection's name: model.layers.0.self_attn.q_proj

    @property
    def nbytes(self) -> int:
        """Planned for all adapters that there may be."""
        return sum(product.nbytes for product in self._products)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Memory that was taken and not touched yet."""
        return tuple(tensor for product in self._products for tensor in product.tensors)

    def room_for(self, pieces: list[CheckpointPiece]) -> LoraWeights:
        """For the adapters of a product that computes these projections, or this rank's part of them."""
        parts = [list(own) for _, own in groupby(pieces, key=lambda piece: piece.name)]
        outputs = [sum(piece.part_shape[0] for piece in part) for part in parts]
        weights = self.ops.lora(pieces[0].part_shape[1], outputs, self.config)
        self._products.append(weights)
        for number, part in enumerate(parts):
            place = _Place(weights, number, part)
            self._places.setdefault(part[0].name.removesuffix(".weight"), []).append(place)
        return weights

    def load(self, adapter: int, path: Path) -> None:
        """Read an adapter, a folder or a file, into its place, which no step may use meanwhile; raises
        `AdapterError`."""
        targets = {name: Target(*places[0].pieces[0].shape) for name, places in self._places.items()}
        with self._opened(path, targets) as files:
            self.unload(adapter)
            for name in files.modules:
                for place in self._places[name]:
                    place.put(adapter, files, name)

    def _opened(self, path: Path, targets: dict[str, Target]) -> AdapterFiles | GgufAdapter:
        if path.is_dir():
            return AdapterFiles(path, targets, self.config.max_rank, self.layout)
        return GgufAdapter(path, targets, self.config.max_rank, self.find_views)

    def unload(self, adapter: int) -> None:
        for product in self._products:
            product.remove(adapter)
