"""The LoRA adapters of a model: memory for each product, and loading into it.

Layers reserve the memory while the model is built, for a number of adapters and a maximum rank. An adapter is read
straight into its slot, and steps that don't use it continue meanwhile. For a product of which a rank has a part, an
adapter's `up` is cut to the same outputs, or its `down` to the same inputs.
"""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from ...kernels import LoraConfig, LoraWeights, Operations
from ...kernels.arrays import Array
from ...records import dataclass
from ..weights.layouts.layout import Layout
from ..weights.piece import CheckpointPiece
from .lora_files import AdapterFiles, Target

if TYPE_CHECKING:
    from .gguf_lora import FindViews, GgufAdapter


@dataclass(frozen=True)
class _Room:
    """The memory for adapters of a projection, or of some of its outputs."""

    weights: LoraWeights
    part: int  # number within the product that computes this projection
    pieces: list[CheckpointPiece]  # the pieces that it computes, one after another

    def put(self, adapter: int, files: "AdapterFiles | GgufAdapter", name: str) -> None:
        downs, ups = zip(*(files.read(name, piece.part) for piece in self.pieces), strict=True)
        self.weights.put(adapter, self.part, downs[0], numpy.concatenate(ups))


class AdapterBank:
    def __init__(self, config: LoraConfig, ops: Operations[Any, Any], layout: Layout, find_views: "FindViews") -> None:
        """`layout` has the family's names of projections, `find_views` those of GGUF files."""
        self.config = config
        self.ops = ops
        self.layout, self.find_views = layout, find_views
        self._products: list[LoraWeights] = []
        self._rooms: dict[str, list[_Room]] = {}  # by the projection's name: model.layers.0.self_attn.q_proj

    @property
    def nbytes(self) -> int:
        """Bytes reserved for all adapters."""
        return sum(product.nbytes for product in self._products)

    @property
    def untouched(self) -> tuple[Array, ...]:
        """The host's memory that was allocated and not touched yet."""
        return tuple(array for product in self._products for array in product.untouched)

    def room_for(self, pieces: list[CheckpointPiece]) -> LoraWeights:
        """Reserve memory for adapters of a product that computes these projections, or this rank's part of them."""
        parts = [list(own) for _, own in groupby(pieces, key=lambda piece: piece.name)]
        outputs = [sum(piece.part_shape[0] for piece in part) for part in parts]
        weights = self.ops.lora(pieces[0].part_shape[1], outputs, self.config)
        self._products.append(weights)
        for number, part in enumerate(parts):
            room = _Room(weights, number, part)
            self._rooms.setdefault(part[0].name.removesuffix(".weight"), []).append(room)
        return weights

    def load(self, adapter: int, path: Path) -> None:
        """Read an adapter, a folder or a file, into its slot, which no step may use meanwhile; raises
        `AdapterError`."""
        targets = {name: Target(*rooms[0].pieces[0].shape) for name, rooms in self._rooms.items()}
        files = self._opened(path, targets)
        self.unload(adapter)
        for name in files.modules:
            for room in self._rooms[name]:
                room.put(adapter, files, name)

    def _opened(self, path: Path, targets: dict[str, Target]) -> "AdapterFiles | GgufAdapter":
        if path.is_dir():
            return AdapterFiles(path, targets, self.config.max_rank, self.layout)
        from .gguf_lora import GgufAdapter

        return GgufAdapter(path, targets, self.config.max_rank, self.find_views)

    def unload(self, adapter: int) -> None:
        for product in self._products:
            product.remove(adapter)
