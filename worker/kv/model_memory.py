"""A model's memory of earlier tokens: the memory of each group of layers, and each layer's part of it."""

from collections.abc import Sequence
from typing import Any

from ...records import dataclass
from .kv_cache import Blocks


@dataclass(frozen=True, eq=False)
class ModelMemory:
    groups: tuple[Blocks, ...]
    places: tuple[tuple[int, int], ...]  # each layer's group, and its number within it
    block_size: int

    @classmethod
    def of(
        cls,
        memories: Sequence[Blocks],
        layers: Sequence[Sequence[int]],
        block_size: int,
        sources: Sequence[int | None] = (),
    ) -> "ModelMemory":
        """`layers`: by group, and all of them in one part where its memory has one; `sources`: by layer, the one whose
        memory it reads, or None for its own."""
        found = {
            layer: (group, number if memories[group].num_layers > 1 else 0)
            for group, own in enumerate(layers)
            for number, layer in enumerate(own)
        }
        found |= {layer: found[source] for layer, source in enumerate(sources) if source is not None}
        return cls(tuple(memories), tuple(found[layer] for layer in range(len(found))), block_size)

    @classmethod
    def of_one(cls, memory: Blocks, block_size: int) -> "ModelMemory":
        """Memory with all layers in one group."""
        return cls((memory,), tuple((0, layer) for layer in range(len(memory.parts[0]))), block_size)

    def after(self, num_layers: int) -> "ModelMemory":
        """The memory of the layers after so many, which share no group with them."""
        places = self.places[num_layers:]
        own = sorted({group for group, _ in places})
        groups = tuple(self.groups[group] for group in own)
        return ModelMemory(groups, tuple((own.index(group), number) for group, number in places), self.block_size)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The arrays or tensors of all groups, each [layers, blocks, …]."""
        return tuple(part for memory in self.groups for part in memory.parts)

    def group_of(self, layer: int) -> int:
        return self.places[layer][0]

    def of_layer(self, layer: int) -> Any:
        group, number = self.places[layer]
        return self.groups[group].of_layer(number)
