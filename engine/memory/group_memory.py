"""The common part of all kinds of groups: a pool of blocks, a second tier, and a table for each sequence.

Every group has the same few methods, whatever its layers keep. `full_blocks.py`, `window_blocks.py` and `states.py` are
the kinds, and `cache.py` calls all groups of a model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Columns
from typing import Generic, NamedTuple, TypeVar

from ...protocol.layer_groups import GroupPlan, blocks_touched
from ..request import Sequence
from .blocks import BlockPool
from .keys import NO_MARK, mark_in
from .offload import SecondTierIndex, Watched
from .time_to_live import TimeToLive

_UNBOUNDED = 2**31 - 1  # tokens


def capacity(group: GroupPlan, block_size: int) -> int:
    """How many tokens of one sequence the group holds, if it has the group to itself."""
    if group.kind == "state":
        return _UNBOUNDED
    if group.window is not None and group.num_blocks >= blocks_touched(group.window, block_size):
        return _UNBOUNDED
    return group.num_blocks * block_size


def smallest(groups: Iterable[GroupPlan], block_size: int) -> GroupPlan:
    """The group that a growing sequence fills first."""
    return min(groups, key=lambda group: capacity(group, block_size))


class Found(NamedTuple):
    """The part of a prefix that a group has."""

    length: int  # of the prefix, in blocks
    # What the prefix's next token needs: the blocks of its table, or the one state. None: only a lower rung has it.
    blocks: Columns[int | None]


NOTHING_FOUND = Found(0, ())


class Appended(NamedTuple):
    """Additions to a sequence's table in a step."""

    block_ids: Columns[int]
    starts: Columns[int] = ()  # for states: the position from which each is written


NOTHING = Appended(())


class Need(NamedTuple):
    """The cost of admitting a sequence to a group, and what the group has."""

    num_blocks: int  # that it will hold for its known tokens
    num_taken: int  # how many of these come from the free list
    num_free: int  # and not promised to others
    most_growth: int  # how many more it and the running sequences could ever take


Table = TypeVar("Table")


class KeysOfGroup(Watched):
    """The keys that all ranks have on disk for one group. Observers hear of those that requests can name: without an
    adapter, or with one that is loaded."""

    def __init__(self, num_ranks: int) -> None:
        self._all = (1 << num_ranks) - 1
        self._ranks: dict[bytes, int] = {}  # a bit for each rank that has the key
        self._marks = {NO_MARK}  # of what requests can name

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._ranks.get(key) == self._all

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, rank: int, key: bytes) -> None:
        ranks = self._ranks.get(key, 0)
        self._ranks[key] = ranks | 1 << rank
        if self.on_stored is not None and ranks != self._all and self.is_nameable(key):
            self.on_stored(key)

    def discard(self, key: bytes) -> None:
        was_nameable = self.is_nameable(key)
        self._ranks.pop(key, None)
        if was_nameable and self.on_forgotten is not None:
            self.on_forgotten(key)

    def is_nameable(self, key: bytes) -> bool:
        return key in self and mark_in(key) in self._marks

    def show(self, mark: bytes) -> None:
        """The adapter with this mark has been loaded."""
        self._marks.add(mark)
        self._tell(mark, self.on_stored)

    def hide(self, mark: bytes) -> None:
        """It has been unloaded. Its blocks stay for another load, or another run."""
        self._tell(mark, self.on_forgotten)
        self._marks.discard(mark)

    def _tell(self, mark: bytes, observer: Callable[[bytes], None] | None) -> None:
        if observer is None:
            return
        for key in self._ranks:
            if mark_in(key) == mark and key in self:
                observer(key)


class GroupMemory(ABC, Generic[Table]):
    def __init__(self, plan: GroupPlan, block_size: int, time_to_live: TimeToLive | None) -> None:
        self.plan = plan
        self.block_size = block_size
        self.time_to_live = time_to_live
        self.second_tier = SecondTierIndex(plan.num_cpu_blocks, time_to_live)
        self.pool = BlockPool(plan.num_blocks, self.second_tier.offer, time_to_live)
        self.on_disk = KeysOfGroup(0)
        # Called with a sequence, and the index and key of a block of it that can now be found in the pool.
        self.on_stored: Callable[[Sequence, int, bytes], None] | None = None

    # --- finding a prefix -------------------------------------------------------------------------------------------

    @abstractmethod
    def find(self, sequence: Sequence, most: int) -> Found:
        """The longest prefix of at most `most` blocks for which the group has what the next token needs."""

    @abstractmethod
    def cut(self, sequence: Sequence, found: Found, most: int) -> Found:
        """Shorten a found prefix to at most `most` blocks."""

    @abstractmethod
    def lacking(self, sequence: Sequence, found: Found) -> Iterable[bytes]:
        """The keys of found blocks that the pool lacks."""

    # --- a sequence comes, grows and leaves -------------------------------------------------------------------------

    @abstractmethod
    def need(self, sequence: Sequence, found: Found) -> Need: ...

    @abstractmethod
    def admit(self, sequence: Sequence, found: Found, branch: int) -> tuple[Table, Appended]:
        """Make a table for the sequence that begins with the found prefix. `branch` is the position up to which
        groups with attention have found more than those with states; 0 if they have not."""

    @abstractmethod
    def missing(self, table: Table, end: int) -> int:
        """How many more blocks must be free for the sequence to be computed up to this position."""

    @abstractmethod
    def reach(self, table: Table, end: int) -> int:
        """The position up to which it can be computed with the free blocks, `end` at most."""

    @abstractmethod
    def extend(self, sequence: Sequence, table: Table, end: int) -> Appended:
        """Append what the sequence needs to be computed from its current position to this one."""

    def give_back(self, sequence: Sequence, table: Table) -> None:
        """Release what no future token reads. No step that could overwrite it has been planned yet."""

    @abstractmethod
    def fork(self, parent: Sequence, table: Table) -> tuple[Table, Columns[int], Columns[int]]:
        """A table for a sequence that continues as its parent does, what the worker needs for it, and pairs of
        source and target to copy. Takes one free block."""

    @abstractmethod
    def publish(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        """Let others find what was made of its first `num_tokens`, which are known and planned."""

    @abstractmethod
    def release(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        """Take everything of a sequence back at once, after its first `num_tokens` were published. Plans in flight
        still read it before a later plan can overwrite it."""

    @abstractmethod
    def num_held(self, table: Table) -> int:
        """How many blocks it holds, or will hold for its known tokens."""

    def begin_step(self, num_entering: int) -> None:
        """Begin planning a step that may admit this many sequences; any row of it may read what the previous step
        wrote."""

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove these keys, so that nothing is found by them."""
        for key in keys:
            self.second_tier.forget(key)
            if (block := self.pool.find(key)) is not None:
                self.pool.forget(block)

    def forget_where(self, is_gone: Callable[[bytes], bool]) -> None:
        """Remove the keys for which this is true from memory."""
        self.pool.forget_where(is_gone)
        self.second_tier.forget_where(is_gone)

    def drop_expired(self) -> None:
        """Remove everything whose time is over, which otherwise happens when it is looked for."""
        self.pool.drop_expired()
        self.second_tier.drop_expired()

    # --- invariants -------------------------------------------------------------------------------------------------

    @abstractmethod
    def held_by(self, table: Table) -> Columns[int]:
        """The blocks that this table holds."""

    @abstractmethod
    def check_table(self, sequence: Sequence, table: Table) -> None:
        """Raise unless the table has everything that the sequence computes and reads."""

    def check(self, tables: Iterable[Table], held: Columns[Columns[int]] = ()) -> None:
        """Raise unless both tiers are consistent and only these tables, and what is `held` besides, hold blocks."""
        self.pool.check([*map(self.held_by, tables), *held])
        self.second_tier.check()

    # --- for the kinds ----------------------------------------------------------------------------------------------

    def name(self, sequence: Sequence, index: int, block: int, key: bytes) -> None:
        """Let others find this block by its key, which is that of the sequence's index-th block."""
        if self.pool.name(block, key) and self.on_stored is not None:
            self.on_stored(sequence, index, key)

    def _use(self, sequence: Sequence, key: bytes) -> tuple[bool, int | None]:
        """Find a key, which then counts as used now, along with its block unless only a lower rung has it."""
        if (block := self.pool.use(key)) is not None:
            return True, block
        is_below = bool(self.second_tier.num_cells and self.second_tier.use(key))
        return is_below or (sequence.looks_on_disk and key in self.on_disk), None
