"""The memory of groups of layers in messages: what each group is, and what a step changes in it.

Layers that keep the same kind of thing for the same tokens form a group, with blocks (or states) numbered from 0. All
lists of groups are in the order of `MemoryPlan.groups`. docs/layer-groups.md says what each kind does.
"""

from typing import Literal

from .wire import Part

GroupKind = Literal["full", "window", "state"]

# In a table of blocks: one that was given back, or never taken, and that no token reads.
ABSENT = -1
CHECKPOINT_EVERY = 2048  # tokens of a prompt: so often its state is kept


def blocks_touched(num_tokens: int, block_size: int) -> int:
    """In how many blocks so many neighbouring tokens lie at most, wherever the first one is in its block."""
    return (num_tokens + block_size - 2) // block_size + 1


class GroupPlan(Part):
    """The memory of one group of layers, on one rank."""

    kind: GroupKind
    num_layers: int
    block_bytes: int  # of one block or state, all layers of the group
    num_blocks: int
    window: int | None = None  # tokens that a query sees, its own included
    num_cpu_blocks: int = 0  # cells of the second tier


class GroupChanges(Part):
    """What a step changes in one group. Row r of the columns is row r of the step."""

    block_ids: bytes  # appended to the rows' tables; row r's are block_ids[block_offsets[r]:block_offsets[r + 1]]
    block_offsets: bytes
    starts: bytes = b""  # of states only, one for each of block_ids: the position from which it is written
    copies: bytes = b""  # pairs of source block, target block
    saves: bytes = b""  # pairs of block, cell in CPU memory; no cell twice
    loads: bytes = b""  # pairs of cell, block; no block twice
