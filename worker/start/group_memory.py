"""One rank's memory of each group of layers: the shape and bytes of a block or state, and the allocation."""

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
    if group.is_drafting:
        ranks = Parallel()
    first, last = local_kv_heads(ranks.rank, ranks.size, group.num_kv_heads)
    return KVShape(group.num_kept, last - first, group.head_dim, group.has_values)


def state_shape(shape: StateShape, ranks: Parallel) -> StateShape:
    """A rank's state; ranks divide channels and matrices evenly."""
    channels, heads = shape.conv_channels // ranks.size, shape.num_heads // ranks.size
    return replace(shape, conv_channels=channels, num_heads=heads)


def block_bytes(group: LayerGroup, backend: Backend, ranks: Parallel, block_size: int, kind: str) -> int:
    """Bytes of one block or state in all layers of the group."""
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
    """Allocate `num_blocks` by group; `sources`: by layer, the one whose memory it reads, or None for its own."""

    def memory(group: LayerGroup, count: int) -> Blocks:
        if group.state is not None:
            return StateMemory.allocate(state_shape(group.state, ranks), len(group.layers), count, backend.device.zeros)
        shape = kv_shape(group, ranks)
        if group.is_drafting and ranks.rank != 0:  # nothing is ever in its blocks
            shape = shape._replace(num_layers=1)
        return backend.kv_memory(shape, count, block_size, kind)

    memories = [memory(*each) for each in zip(groups, num_blocks, strict=True)]
    return ModelMemory.of(memories, [group.layers for group in groups], block_size, sources)
