"""What all kinds of groups have in common: a pool of blocks, a second tier, and a table for each sequence.

A group's memory answers the same few questions whatever its layers keep. `full_blocks.py`, `window_blocks.py` and
`states.py` are the kinds, and `cache.py` asks all groups of a model.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Sequence as Columns
from typing import Generic, NamedTuple, TypeVar

from ...protocol.layer_groups import GroupPlan, blocks_touched
from ..request import Sequence
from .blocks import BlockPool
from .offload import SecondTierIndex
from .time_to_live import TimeToLive

_UNBOUNDED = 2**31 - 1  # tokens


def capacity(group: GroupPlan, block_size: int) -> int:
    """How many tokens of one sequence the group holds, if it has all of it."""
    if group.kind == "state":
        return _UNBOUNDED
    if group.window is not None and group.num_blocks >= blocks_touched(group.window, block_size):
        return _UNBOUNDED
    return group.num_blocks * block_size


def smallest(groups: Iterable[GroupPlan], block_size: int) -> GroupPlan:
    """The group that a growing sequence fills first."""
    return min(groups, key=lambda group: capacity(group, block_size))


class Found(NamedTuple):
    """What a group has of a prefix."""

    length: int  # of the prefix, in blocks
    # Those that the prefix's next token needs: as a table begins with them, or the one state. None: only the second
    # tier has it.
    blocks: Columns[int | None]

NOTHING_FOUND = Found(0, ())


class Appended(NamedTuple):
    """What a sequence's table gets in a step."""

    block_ids: Columns[int]
    starts: Columns[int] = ()  # of states: the position from which each is written


NOTHING = Appended(())


class Need(NamedTuple):
    """What admitting a sequence would take of a group, and what there is."""

    num_blocks: int  # that it will hold for its known tokens
    num_taken: int  # how many of these come from the free list
    num_free: int  # and not promised to others
    most_growth: int  # how many more it and those that run could ever take


Table = TypeVar("Table")


class GroupMemory(ABC, Generic[Table]):
    def __init__(self, plan: GroupPlan, block_size: int, time_to_live: TimeToLive | None) -> None:
        self.plan = plan
        self.block_size = block_size
        self.second_tier = SecondTierIndex(plan.num_cpu_blocks, time_to_live)
        self.pool = BlockPool(plan.num_blocks, self.second_tier.offer, time_to_live)

    # --- finding a prefix -------------------------------------------------------------------------------------------

    @abstractmethod
    def find(self, sequence: Sequence, most: int) -> Found:
        """The longest prefix of at most so many blocks of which the group has what the next token needs."""

    @abstractmethod
    def cut(self, sequence: Sequence, found: Found, most: int) -> Found:
        """The longest prefix of at most so many blocks, where a longer one was found."""

    # --- a sequence comes, grows and leaves -------------------------------------------------------------------------

    @abstractmethod
    def need(self, sequence: Sequence, found: Found) -> Need: ...

    @abstractmethod
    def admit(self, sequence: Sequence, found: Found, branch: int) -> tuple[Table, Appended]:
        """Make a table for the sequence that begins with what was found. `branch` is the position up to which groups
        with attention have found more than those with states; 0 where they have not."""

    @abstractmethod
    def missing(self, table: Table, end: int) -> int:
        """How many blocks must be free so that the sequence can be computed up to this position."""

    @abstractmethod
    def reach(self, table: Table, end: int) -> int:
        """Up to which position it can be computed with what is free, `end` at most."""

    @abstractmethod
    def extend(self, sequence: Sequence, table: Table, end: int) -> Appended:
        """Append what the sequence needs to be computed from where it is up to this position."""

    def give_back(self, sequence: Sequence, table: Table) -> None:
        """Release what no token to come reads. No step has been planned yet that could overwrite it."""

    @abstractmethod
    def fork(self, parent: Sequence, table: Table) -> tuple[Table, Columns[int], Columns[int]]:
        """A table for a sequence that goes on as its parent does, what the worker is told of it, and pairs of source
        and target that must be copied for it. Takes one free block."""

    @abstractmethod
    def publish(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        """Let others find what was made of its first `num_tokens`, which are known and planned."""

    @abstractmethod
    def release(self, sequence: Sequence, table: Table, num_tokens: int) -> None:
        """Take all of a sequence back at once, after its first `num_tokens` were published. Plans in flight still read
        it before a later plan can overwrite it."""

    @abstractmethod
    def num_held(self, table: Table) -> int:
        """How many blocks it holds, or will before its known tokens are computed."""

    def begin_step(self, num_entering: int) -> None:
        """A step is planned, which so many sequences may enter; any row of it may read what the one before has
        written."""

    def forget(self, keys: Iterable[bytes]) -> None:
        """Let nobody find what has these keys."""
        for key in keys:
            self.second_tier.forget(key)
            if (block := self.pool.find(key)) is not None:
                self.pool.forget(block)

    # --- invariants -------------------------------------------------------------------------------------------------

    @abstractmethod
    def held_by(self, table: Table) -> Columns[int]:
        """The blocks that this table holds."""

    @abstractmethod
    def check_table(self, sequence: Sequence, table: Table) -> None:
        """Raise unless the table has what the sequence computes and reads."""

    def check(self, tables: Iterable[Table]) -> None:
        """Raise unless both tiers are consistent and only these tables hold blocks."""
        self.pool.check(map(self.held_by, tables))
        self.second_tier.check()

    # --- for the kinds ----------------------------------------------------------------------------------------------

    def _use(self, key: bytes) -> tuple[bool, int | None]:
        """Whether something has this key, which then counts as used now, and its block unless only a cell has it."""
        block = self.pool.use(key)
        return block is not None or bool(self.second_tier.num_cells and self.second_tier.use(key)), block
