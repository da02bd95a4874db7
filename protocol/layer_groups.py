"""The memory of layer groups in messages: what each group keeps, what a step changes in it, and what is on disk of it.

Layers that keep the same kind of thing for the same tokens form a group, with blocks (or states) numbered from 0. All
lists of groups are in the order of `MemoryPlan.groups`. docs/layer-groups.md explains each kind.
"""

from collections.abc import Iterable
from typing import Literal

from .wire import Message, Part

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
    is_drafting: bool = False  # of the model that drafts


class GroupChanges(Part):
    """Changes of one group in a step. Row r of the columns is row r of the step."""

    block_ids: bytes  # appended to the rows' tables; row r's are block_ids[block_offsets[r]:block_offsets[r + 1]]
    block_offsets: bytes
    starts: bytes = b""  # only for states, one for each of block_ids: the position from which it is written
    copies: bytes = b""  # pairs of source block, target block
    saves: bytes = b""  # pairs of block, cell in CPU memory; no cell twice
    loads: bytes = b""  # pairs of cell, block; no block twice


# --- blocks on the workers' disks -------------------------------------------------------------------------------------
# A block is identified by its group and its key (`engine/memory/keys.py`), the rows of a medium by a key alone. A list
# of keys is sent as their bytes, one after another.

KEY_BYTES = 32
KEYS_SENT = 4096  # in one message, at most


def media_group(num_groups: int) -> int:
    """Return the number of the group that media's rows have on disk: the next after the groups of layers."""
    return num_groups


def joined(keys: Iterable[bytes]) -> bytes:
    return b"".join(keys)


def keys_in(packed: bytes) -> list[bytes]:
    return [packed[start : start + KEY_BYTES] for start in range(0, len(packed), KEY_BYTES)]


class StoreBlocks(Part):
    """Write these blocks, which follow one another in a chain and don't change until all ranks have answered."""

    number: int  # the answer repeats it
    group: int
    previous: bytes  # the key of the block before the first one; empty for a chain's beginning
    keys: bytes
    block_ids: bytes  # int32


class FetchBlocks(Part):
    """Read these blocks, in this order. No plan uses them until all ranks have answered."""

    number: int
    groups: bytes  # int32, of each block
    keys: bytes
    block_ids: bytes  # int32


class StoreRows(Part):
    """Write the rows of an encoded medium, unless its entry is dropped before that."""

    entry: int
    key: bytes


class FetchRows(Part):
    """Read the rows of a medium into a new entry. No plan uses them until all ranks have answered; one that begins to
    encode the entry instead ends the fetch."""

    number: int
    entry: int
    num_rows: int
    key: bytes


class SpareStates(Part):
    """States of one group for the tokens of a slot's rows with drafts."""

    slot: int
    group: int
    states: bytes


class DiskOrders(Part):
    """What a plan asks of the disk; a worker begins with it after the plan's saves and loads, with rows of media after
    its encodes."""

    stores: list[StoreBlocks] = []
    fetches: list[FetchBlocks] = []
    used: list[tuple[int, bytes]] = []  # group and key of the last block of each chain that counts as used now
    forgotten: bytes = b""  # keys, of all groups
    stored_rows: list[StoreRows] = []
    fetched_rows: list[FetchRows] = []

    @property
    def has_rows(self) -> bool:
        """Whether it is about rows of media."""
        return bool(self.stored_rows or self.fetched_rows)


class BlocksStored(Message):
    """Worker → engine: these blocks were written, or given up; they may be overwritten."""

    rank: int
    number: int


class BlocksFetched(Message):
    """Worker → engine: the next blocks of an order; 1 for each one that was there and was intact."""

    rank: int
    number: int
    are_there: bytes


class RowsFetched(Message):
    """Worker → engine: the rows of an order's medium; whether they were there and intact."""

    rank: int
    number: int
    is_there: bool


class KeysOnDisk(Message):
    """Worker → engine: blocks that can be fetched from now on, or, if they are `gone`, no longer."""

    rank: int
    group: int  # after all groups of layers, one of media
    keys: bytes
    gone: bool = False


AboutDisk = BlocksStored | BlocksFetched | RowsFetched | KeysOnDisk  # received by the engine
