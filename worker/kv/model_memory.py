"""What a model's layers keep of earlier tokens: the memory of each group of layers, and each layer's part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .kv_cache import Blocks


@dataclass(frozen=True, eq=False)
class ModelMemory:
    groups: tuple[Blocks, ...]
    places: tuple[tuple[int, int], ...]  # of each layer its group, and its number there
    block_size: int

    @classmethod
    def of(
        cls,
        memories: Sequence[Blocks],
        layers: Sequence[Sequence[int]],
        block_size: int,
        sources: Sequence[int | None] = (),
    ) -> "ModelMemory":
        """`layers` are those of each group; `sources`: of each layer the one whose memory it reads, None its own."""
        found = {layer: (group, place) for group, own in enumerate(layers) for place, layer in enumerate(own)}
        found |= {layer: found[source] for layer, source in enumerate(sources) if source is not None}
        return cls(tuple(memories), tuple(found[layer] for layer in range(len(found))), block_size)

    @classmethod
    def of_one(cls, memory: Blocks, block_size: int) -> "ModelMemory":
        """All layers are one group."""
        return cls((memory,), tuple((0, layer) for layer in range(len(memory.tensors[0]))), block_size)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Each [layers, blocks, …]."""
        return tuple(tensor for memory in self.groups for tensor in memory.tensors)

    def group_of(self, layer: int) -> int:
        return self.places[layer][0]

    def of_layer(self, layer: int) -> Any:
        group, number = self.places[layer]
        return self.groups[group].of_layer(number)
