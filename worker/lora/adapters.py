"""The LoRA adapters that a model can have: memory beside each product, and loading into it.

Layers reserve the memory while the model is built, for a number of adapters and a largest rank. An adapter is read
straight into its place, and steps that don't use it go on meanwhile. For the part of a product that a rank holds, an
adapter's `up` has the same outputs, or its `down` the same inputs.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ...kernels import LoraConfig, LoraWeights, Operations
from ..weights.piece import CheckpointPiece
from .lora_files import AdapterFiles, Target


@dataclass(frozen=True)
class _Place:
    """Where a projection's adapters go."""

    weights: LoraWeights
    part: int  # of the product that computes this projection
    piece: CheckpointPiece  # what this rank holds of it


class AdapterBank:
    def __init__(self, config: LoraConfig, ops: Operations) -> None:
        self.config = config
        self.ops = ops
        self._products: list[LoraWeights] = []
        self._places: dict[str, _Place] = {}  # by the projection's name: model.layers.0.self_attn.q_proj

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
        in_features = pieces[0].part_shape[1]
        weights = self.ops.lora(in_features, [piece.part_shape[0] for piece in pieces], self.config)
        self._products.append(weights)
        for part, piece in enumerate(pieces):
            self._places[piece.name.removesuffix(".weight")] = _Place(weights, part, piece)
        return weights

    def load(self, adapter: int, folder: Path) -> None:
        """Read an adapter into its place, which no step may use meanwhile; raises `AdapterError`."""
        targets = {name: Target(*place.piece.shape) for name, place in self._places.items()}
        with AdapterFiles(folder, targets, self.config.max_rank) as files:
            self.unload(adapter)
            for name in files.modules:
                place = self._places[name]
                place.weights.put(adapter, place.part, *files.read(name, place.piece.part))

    def unload(self, adapter: int) -> None:
        for product in self._products:
            product.remove(adapter)
