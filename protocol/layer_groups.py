"""The memory of layer groups in messages: what each group keeps, and what a step changes in it.

Layers that keep the same kind of thing for the same tokens form a group, with blocks (or states) numbered from 0. All
lists of groups are in the order of `MemoryPlan.groups`. docs/layer-groups.md explains each kind.
"""

from typing import Literal

from .wire import Part

GroupKind = Literal["full", "window", "state"]

# In a table of blocks: a block that was given back or never taken, and that no token reads.
ABSENT = -1
CHECKPOINT_EVERY = 2048  # prompt tokens between two saved states


def blocks_touched(num_tokens: int, block_size: int) -> int:
    """The most blocks that this many consecutive tokens can touch, wherever the first one is in its block."""
    return (num_tokens + block_size - 2) // block_size + 1


class GroupPlan(Part):
    """The memory of one group of layers, on one rank."""

    kind: GroupKind
    num_layers: int
    block_bytes: int  # of one block or state, in all layers of the group
    num_blocks: int
    window: int | None = None  # tokens that a query attends to, its own included
    num_cpu_blocks: int = 0  # cells of the second tier


class GroupChanges(Part):
    """Changes of one group in a step. Row r of the columns is row r of the step."""

    block_ids: bytes  # appended to the rows' tables; row r's are block_ids[block_offsets[r]:block_offsets[r + 1]]
    block_offsets: bytes
    starts: bytes = b""  # only for states, one for each of block_ids: the position from which it is written
    copies: bytes = b""  # pairs of source block, target block
    saves: bytes = b""  # pairs of block, cell in CPU memory; no cell twice
    loads: bytes = b""  # pairs of cell, block; no block twice
