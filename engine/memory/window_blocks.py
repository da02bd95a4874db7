"""A group of layers with a window: blocks that no future token reads are given back for reuse.

A token at position p reads the keys from p - window + 1 on. A table keeps its length; blocks that were given back are
ABSENT in it. It grows chunk by chunk, so a long prompt never holds more than a window and the chunk being computed.

On admission a sequence is promised all blocks that its known tokens need, although it takes them later: so no other
sequence is admitted on the strength of them.
"""

from collections.abc import Sequence as Columns

from ...protocol.layer_groups import ABSENT, GroupPlan, blocks_touched
from ..request import Sequence
from .full_blocks import BlockGroup, BlockTable, blocks_for
from .group_memory import NOTHING_FOUND, Appended, Found, Need
from .keys import key_of
from .time_to_live import TimeToLive


class WindowTable(BlockTable):
    __slots__ = ("growth", "most", "num_absent", "num_wanted", "promised")

    def __init__(self, block_ids: list[int], num_findable: int, num_absent: int, wanted: int, most: int) -> None:
        super().__init__(block_ids, num_findable)
        self.num_absent = num_absent  # at its head
        self.num_wanted = wanted  # blocks that its known tokens need at a time
        self.most = most  # blocks that it ever needs at a time
        self.promised = 0  # how many of the wanted ones it doesn't hold
        self.growth = 0  # how many it may take beyond these

    @property
    def num_held(self) -> int:
        return len(self.block_ids) - self.num_absent


class WindowBlocks(BlockGroup[WindowTable]):
    def __init__(self, plan: GroupPlan, block_size: int, time_to_live: TimeToLive | None) -> None:
        super().__init__(plan, block_size, time_to_live)
        if plan.window is None:
            raise ValueError("A group of layers with windows lacks the window's length.")
        self.window = plan.window
        self._num_promised = 0  # sums over all tables
        self._most_growth = 0

    def first_read(self, position: int) -> int:
        """The first block that a token at this position reads, or one after it."""
        return max(0, position - self.window + 1) // self.block_size

    def find(self, sequence: Sequence, most: int) -> Found:
        """Probe from the longest prefix down: none is found that needs a missing block."""
        end = most
        while end:
            first = self.first_read(end * self.block_size)
            blocks: list[int | None] = []  # from the last one down
            for index in range(end - 1, first - 1, -1):
                is_there, block = self._use(sequence, key_of(sequence, index, self.block_size))
                if not is_there:
                    break
                blocks.append(block)
            if len(blocks) == end - first:
                return Found(end, [ABSENT] * first + blocks[::-1])
            end -= len(blocks) + 1
        return NOTHING_FOUND

    def cut(self, sequence: Sequence, found: Found, most: int) -> Found:
        return self.find(sequence, most) if most < found.length else found

    def need(self, sequence: Sequence, found: Found) -> Need:
        wanted, most = self._wanted(sequence)
        num_taken = self._num_taken(found, wanted)
        num_free = self.pool.num_free - self._num_promised
        return Need(wanted, num_taken, num_free, self._most_growth + most - wanted)

    def admit(self, sequence: Sequence, found: Found, branch: int) -> tuple[WindowTable, Appended]:
        block_ids = self._with_loaded(sequence, found)
        table = WindowTable(block_ids, found.length, block_ids.count(ABSENT), *self._wanted(sequence))
        self._promise(table)
        return table, Appended(list(block_ids))

    def extend(self, sequence: Sequence, table: WindowTable, end: int) -> Appended:
        appended = super().extend(sequence, table, end)
        if sequence.media is not None:  # pictures behind it need no blocks any more
            table.num_wanted, table.most = self._wanted(sequence)
        self._promise(table)
        return appended

    def give_back(self, sequence: Sequence, table: WindowTable) -> None:
        first = min(self.first_read(sequence.num_computed - sequence.num_doubtful), len(table.block_ids))
        if first <= table.num_absent:
            return
        given = table.block_ids[table.num_absent : first]
        table.block_ids[table.num_absent : first] = [ABSENT] * len(given)
        table.num_absent = first
        self.pool.release(given)
        self._promise(table)

    def fork(self, parent: Sequence, table: WindowTable) -> tuple[WindowTable, Columns[int], Columns[int]]:
        block_ids, num_findable, copies = self._shared(parent, table)
        child = WindowTable(block_ids, num_findable, block_ids.count(ABSENT), table.num_wanted, table.most)
        self._promise(child)
        return child, block_ids, copies

    def release(self, sequence: Sequence, table: WindowTable, num_tokens: int) -> None:
        self.publish(sequence, table, num_tokens)
        self.pool.release(table.block_ids[table.num_absent :])
        self._num_promised -= table.promised
        self._most_growth -= table.growth
        table.block_ids, table.num_absent, table.promised, table.growth = [], 0, 0, 0

    def num_held(self, table: WindowTable) -> int:
        return table.num_held + table.promised

    def held_by(self, table: WindowTable) -> Columns[int]:
        return [block for block in table.block_ids if block != ABSENT]

    def check_table(self, sequence: Sequence, table: WindowTable) -> None:
        super().check_table(sequence, table)
        if ABSENT in table.block_ids[self.first_read(sequence.num_computed - sequence.num_doubtful) :]:
            raise RuntimeError(f"Sequence {sequence.id} has given back blocks that its next token reads.")

    def _wanted(self, sequence: Sequence) -> tuple[int, int]:
        """How many blocks a sequence needs at a time for its given tokens, and ever."""
        wanted, most = (blocks_for(count, self.block_size) for count in (sequence.num_given, sequence.max_total))
        together = 1 if sequence.media is None else sequence.media.most_together(sequence.num_computed)
        touched = blocks_touched(self.window - 1 + together, self.block_size)
        return min(wanted, touched), min(max(wanted, most), touched)

    def _promise(self, table: WindowTable) -> None:
        promised = max(0, table.num_wanted - table.num_held)
        growth = max(0, table.most - table.num_held - promised)
        self._num_promised += promised - table.promised
        self._most_growth += growth - table.growth
        table.promised, table.growth = promised, growth
