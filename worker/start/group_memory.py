"""What one rank keeps of each group of layers: the shape of a block or state, its bytes, and the memory of all."""

from collections.abc import Sequence
from dataclasses import replace

from ..backends.backend import Backend
from ..description.groups import LayerGroup
from ..description.parts.mixers import StateShape
from ..kv.kv_cache import Blocks, KVShape
from ..kv.model_memory import ModelMemory
from ..kv.state_memory import StateMemory
from ..layers.linear import local_kv_heads
from ..ranks.parallel import Parallel


def kv_shape(group: LayerGroup, ranks: Parallel) -> KVShape:
    first, last = local_kv_heads(ranks.rank, ranks.size, group.num_kv_heads)
    return KVShape(len(group.layers), last - first, group.head_dim, group.has_values)


def state_shape(shape: StateShape, ranks: Parallel) -> StateShape:
    """Ranks share the channels and the matrices evenly."""
    channels, heads = shape.conv_channels // ranks.size, shape.num_heads // ranks.size
    return replace(shape, conv_channels=channels, num_heads=heads)


def block_bytes(group: LayerGroup, backend: Backend, ranks: Parallel, block_size: int, kind: str) -> int:
    """Of one block, or state, in all layers of the group."""
    if group.state is not None:
        return len(group.layers) * state_shape(group.state, ranks).nbytes
    return backend.kv_bytes_per_token(kv_shape(group, ranks), kind) * block_size


def allocated(
    groups: Sequence[LayerGroup],
    num_blocks: Sequence[int],
    backend: Backend,
    ranks: Parallel,
    block_size: int,
    kind: str,
    sources: Sequence[int | None] = (),
) -> ModelMemory:
    """`num_blocks` are those of each group; `sources`: of each layer the one whose memory it reads, None its own."""

    def memory(group: LayerGroup, count: int) -> Blocks:
        if group.state is not None:
            return StateMemory.allocate(state_shape(group.state, ranks), len(group.layers), count, backend.device)
        return backend.kv_memory(kv_shape(group, ranks), count, block_size, kind)

    memories = [memory(*each) for each in zip(groups, num_blocks, strict=True)]
    return ModelMemory.of(memories, [group.layers for group in groups], block_size, sources)
