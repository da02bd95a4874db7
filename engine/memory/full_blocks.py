"""Groups of layers that keep blocks of tokens, and the plainest kind: full attention or latents, for which a sequence
keeps every block until it leaves.

A full block can be found as soon as its computation is planned and all its tokens are known: workers take plans in
order, and each layer writes all rows' keys and values before any row attends. A block that is evicted from the pool is
offered to the second tier under its key. A hit there is loaded into a block of the pool, where later requests find it.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Columns
from typing import TypeVar

from ...protocol.layer_groups import ABSENT
from ..request import Sequence
from .group_memory import NOTHING, Appended, Found, GroupMemory, Need
from .keys import key_of


def blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


class BlockTable:
    """A sequence's blocks, by index."""

    __slots__ = ("block_ids", "num_findable")

    def __init__(self, block_ids: list[int], num_findable: int) -> None:
        self.block_ids = block_ids
        self.num_findable = num_findable  # blocks at its head that have a key


Table = TypeVar("Table", bound=BlockTable)


class BlockGroup(GroupMemory[Table]):
    """The common part of groups that keep blocks."""

    def missing(self, table: Table, end: int) -> int:
        return -(-end // self.block_size) - len(table.block_ids)

    def reach(self, table: Table, end: int) -> int:
        return min(end, (len(table.block_ids) + self.pool.num_free) * self.block_size)

    def extend(self, sequence: Sequence, table: Table, end: int) -> Appended:
        count = self.missing(table, end)
        if count <= 0:
            return NOTHING
        fresh = self.pool.allocate(count)
        table.block_ids += fresh
        return Appended(fresh)

    def publish(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        block_ids, size = table.block_ids, self.block_size
        for index in range(table.num_findable, num_tokens // size):
            if block_ids[index] != ABSENT:
                self.name(sequence, index, block_ids[index], key_of(sequence, index, size))
            table.num_findable = index + 1

    def release(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        self.publish(sequence, table, num_tokens)
        self.pool.release(table.block_ids)
        table.block_ids = []

    def num_held(self, table: Table) -> int:
        return len(table.block_ids)

    def held_by(self, table: Table) -> Columns[int]:
        return table.block_ids

    def check_table(self, sequence: Sequence, table: Table) -> None:
        if len(table.block_ids) * self.block_size < sequence.num_computed:
            raise RuntimeError(f"Sequence {sequence.id} computes {sequence.num_computed} tokens beyond its blocks.")

    def _shared(self, parent: Sequence, table: Table) -> tuple[list[int], int, Columns[int]]:
        """Share the parent's full blocks, and copy the last one if it is partly filled. Returns the blocks, the
        number of those with a key, and the copy."""
        num_full, rest = divmod(parent.num_computed, self.block_size)
        shared = table.block_ids[:num_full]
        self.pool.hold(block for block in shared if block != ABSENT)
        (own,) = self.pool.allocate(1)
        return [*shared, own], min(table.num_findable, num_full), (table.block_ids[num_full], own) if rest else ()

    def _with_loaded(self, sequence: Sequence, found: Found) -> list[int]:
        """Hold the found blocks, and load those that only the second tier has into free ones."""
        absent = self._absent(sequence, found)
        # Hold and pin the hits first, so that the allocation cannot evict them.
        self.pool.hold(in_pool(found))
        if absent:
            self.second_tier.pin(list(absent.values()))
        fresh = iter(self.pool.allocate(len(absent)))
        block_ids = [next(fresh) if block is None else block for block in found.blocks]
        for index, key in absent.items():
            self.second_tier.load(key, block_ids[index])
            self.name(sequence, index, block_ids[index], key)
        return block_ids

    def lacking(self, sequence: Sequence, found: Found) -> Iterable[bytes]:
        return self._absent(sequence, found).values()

    def _absent(self, sequence: Sequence, found: Found) -> dict[int, bytes]:
        """The keys of found blocks that the pool lacks, by index."""
        absent = (index for index, block in enumerate(found.blocks) if block is None)
        return {index: key_of(sequence, index, self.block_size) for index in absent}

    def _num_taken(self, found: Found, num_blocks: int) -> int:
        """How many free blocks it takes to hold so many, beginning with the found ones."""
        held = in_pool(found)
        return num_blocks - len(held) + sum(map(self.pool.is_free, held))


def in_pool(found: Found) -> list[int]:
    """The found blocks that the pool has."""
    return [block for block in found.blocks if block is not None and block != ABSENT]


class FullBlocks(BlockGroup[BlockTable]):
    def find(self, sequence: Sequence, most: int) -> Found:
        blocks: list[int | None] = []
        for index in range(most):
            is_there, block = self._use(sequence, key_of(sequence, index, self.block_size))
            if not is_there:
                break
            blocks.append(block)
        return Found(len(blocks), blocks)

    def cut(self, sequence: Sequence, found: Found, most: int) -> Found:
        return Found(most, found.blocks[:most]) if most < found.length else found

    def need(self, sequence: Sequence, found: Found) -> Need:
        num_blocks = blocks_for(sequence.num_given, self.block_size)
        return Need(num_blocks, self._num_taken(found, num_blocks), self.pool.num_free, self.pool.num_blocks)

    def admit(self, sequence: Sequence, found: Found, branch: int) -> tuple[BlockTable, Appended]:
        """Allocate a table for all its given tokens."""
        block_ids = self._with_loaded(sequence, found)
        block_ids += self.pool.allocate(blocks_for(sequence.num_given, self.block_size) - len(block_ids))
        return BlockTable(block_ids, found.length), Appended(block_ids)

    def fork(self, parent: Sequence, table: BlockTable) -> tuple[BlockTable, Columns[int], Columns[int]]:
        block_ids, num_findable, copies = self._shared(parent, table)
        return BlockTable(block_ids, num_findable), block_ids, copies
