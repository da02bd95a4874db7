"""A group of layers that keep a state: a memory of all tokens so far, of fixed size, updated by each token.

A running sequence writes one state. At a checkpoint the state is kept, to be found by the key of the block that ends
there, and the sequence continues in a free one. Nothing is copied: a worker reads the kept one and writes the other. If
no state is free, the sequence continues in its own, which costs a hit later.

No other row of a step may read or overwrite a state that the step writes: attention rows see one another's blocks, but
states are written token by token. So kept states can be found, and states that were read are free, from the next step
on.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Columns
from typing import NamedTuple

from ...protocol.layer_groups import GroupPlan
from ..request import Sequence
from .group_memory import NOTHING, NOTHING_FOUND, Appended, Found, GroupMemory, Need
from .keys import key_of
from .time_to_live import TimeToLive

_SPARE_SHARE = 8  # one state in so many may be spare


class Checkpoints:
    """The positions since its admission at which a sequence's state is kept, so that others, or itself later, can
    continue from there.

    All are block boundaries, because blocks have keys:

    - every so many tokens, for prompts that share a long beginning;
    - the last border before a prompt's last token: the same prompt again, and the samples of one, compute a block's
      tokens;
    - where blocks of attention were found further than states: others share that prefix, so the next one finds it
      whole;
    - from the last border of what is known when the sequence is admitted, each border of the answer. Of these only the
      newest is kept: the next turn of a conversation and a sequence that gave way go on from it.
    """

    __slots__ = ("_block_size", "_branch", "_every", "_prompt_border", "_rolling_from")

    def __init__(self, sequence: Sequence, block_size: int, every: int, branch: int) -> None:
        """`branch`: the position up to which attention has found more blocks than there are states for, or 0."""
        self._block_size = block_size
        self._every = every
        self._branch = branch
        self._prompt_border = self._last_border(sequence.num_prompt)
        self._rolling_from = self._last_border(sequence.num_given)

    def between(self, start: int, end: int) -> Iterator[int]:
        """The positions in [start, end), in order; none at the very beginning, where every state is zeros."""
        size = self._block_size
        for border in range(max(size, -(-start // size) * size), end, size):
            is_single = border in (self._prompt_border, self._branch)
            if is_single or border >= self._rolling_from or self._is_regular(border):
                yield border

    def is_rolling(self, position: int) -> bool:
        """Whether it is kept only until the next one is found."""
        return position > self._prompt_border and not self._is_regular(position)

    def _is_regular(self, border: int) -> bool:
        """Whether the block that begins here contains a multiple of the distance."""
        return (border + self._block_size - 1) // self._every > (border - 1) // self._every

    def _last_border(self, num_tokens: int) -> int:
        return (num_tokens - 1) // self._block_size * self._block_size


class StateTable:
    """The state that a sequence writes, and those it has kept that can't be found yet."""

    __slots__ = ("before", "checkpoints", "newest", "newest_key", "spares", "start", "unnamed", "write")

    def __init__(self, write: int, start: int, checkpoints: Checkpoints) -> None:
        self.write = write
        self.start = start  # the position from which it is written
        self.before = write  # the state written up to that position
        self.checkpoints = checkpoints
        # Position and state of kept ones whose tokens are not all known: they are on their way from the worker.
        self.unnamed: list[tuple[int, int]] = []
        self.spares: list[int] = []  # for the tokens of rows with drafts, written and read by nobody else
        self.newest, self.newest_key = 0, b""  # position and key of the newest rolling checkpoint that can be found


class Kept(NamedTuple):
    """A state that the step being planned reads or writes; no other step may until the next. If a chunk passes through
    the layers over several steps, none may until the one after its last."""

    state: int
    position: int = 0
    key: bytes | None = None  # the key by which it can then be found
    table: StateTable | None = None  # of the sequence that wrote it
    sequence: Sequence | None = None  # likewise

    @property
    def is_begun(self) -> bool:
        """Whether layers of a chunk are left that write it, or read it first."""
        return self.sequence is not None and self.sequence.num_computed <= self.position <= self.sequence.num_begun


class States(GroupMemory[StateTable]):
    def __init__(self, plan: GroupPlan, block_size: int, time_to_live: TimeToLive | None, every: int) -> None:
        super().__init__(plan, block_size, time_to_live)
        self._every = every
        self._kept: list[Kept] = []
        self._num_spare = 0  # states that sequences have for drafts
        self._num_wanted = 0  # states that waiting sequences could be given
        # With a single state there is none left to continue in.
        self._keeps = plan.num_blocks > 1

    def find(self, sequence: Sequence, most: int) -> Found:
        for length in range(most if self._keeps else 0, 0, -1):
            is_there, state = self._use(sequence, self._key_at(sequence, length * self.block_size))
            if is_there:
                return Found(length, (state,))
        return NOTHING_FOUND

    def cut(self, sequence: Sequence, found: Found, most: int) -> Found:
        return self.find(sequence, most) if most < found.length else found

    def lacking(self, sequence: Sequence, found: Found) -> Iterable[bytes]:
        return [self._key_at(sequence, found.length * self.block_size)] if None in found.blocks else []

    def is_coming(self, sequence: Sequence, least: int, most: int) -> bool:
        """Whether the step being planned keeps a state for a prefix longer than `least` blocks, up to `most`."""
        coming = {kept.key for kept in self._kept if kept.key is not None and not kept.is_begun}
        return bool(coming) and any(
            self._key_at(sequence, length * self.block_size) in coming for length in range(most, least, -1)
        )

    def need(self, sequence: Sequence, found: Found) -> Need:
        num_taken = 1 + sum(block is None or self.pool.is_free(block) for block in found.blocks)
        return Need(1, num_taken, self.pool.num_free, 0)

    def admit(self, sequence: Sequence, found: Found, branch: int) -> tuple[StateTable, Appended]:
        position = found.length * self.block_size
        read = [self._held(sequence, found)] if found.length else []
        (write,) = self.pool.allocate(1)
        table = StateTable(write, position, Checkpoints(sequence, self.block_size, self._every, branch))
        for state in read:
            self._kept.append(Kept(state))
            if table.checkpoints.is_rolling(position):
                table.newest, table.newest_key = position, self._key_at(sequence, position)
        return table, Appended((*read, write), (*(0 for _ in read), position))

    def missing(self, table: StateTable, end: int) -> int:
        return 0

    def reach(self, table: StateTable, end: int) -> int:
        return end

    def extend(self, sequence: Sequence, table: StateTable, end: int) -> Appended:
        fresh: list[int] = []
        starts: list[int] = []
        for position in table.checkpoints.between(sequence.num_computed, end) if self._keeps else ():
            # A sequence that waits for a state is worth more than a later hit.
            num_wanted = self._num_wanted if table.checkpoints.is_rolling(position) else 0
            if position <= table.start or self.pool.num_free <= num_wanted:
                continue
            (state,) = self.pool.allocate(1)
            table.before, table.write, table.start = table.write, state, position
            fresh.append(state)
            starts.append(position)
            self._keep(sequence, table)
        return Appended(fresh, starts) if fresh else NOTHING

    def fork(self, parent: Sequence, table: StateTable) -> tuple[StateTable, Columns[int], Columns[int]]:
        """Copy the state that holds what the parent has computed. The fork continues in the copy."""
        source = table.before if table.start == parent.num_computed else table.write
        (copy,) = self.pool.allocate(1)
        child = StateTable(copy, parent.num_computed, table.checkpoints)
        return child, (copy,), (source, copy)

    def publish(self, sequence: Sequence, table: StateTable, num_tokens: int) -> None:
        # A row with drafts may have ended where a state is kept. Then the sequence's next row reads it, so it isn't
        # free before that. That row may be one of the step being planned.
        num_read = sequence.num_computed - sequence.num_doubtful - 1
        while table.unnamed and table.unnamed[0][0] <= min(num_tokens, num_read):
            position, state = table.unnamed.pop(0)
            self._kept.append(Kept(state, position, self._key_at(sequence, position), table, sequence))

    def release(self, sequence: Sequence, table: StateTable, num_tokens: int) -> None:
        while table.unnamed and table.unnamed[0][0] <= num_tokens:
            position, state = table.unnamed.pop(0)
            self._name(sequence, table, position, state, self._key_at(sequence, position))
            self.pool.release([state])
        position = sequence.num_computed
        if sequence.num_begun:  # some layers have written beyond that position
            self._drop_unfinished(sequence)
        elif self._keeps and table.start < position <= num_tokens and position % self.block_size == 0:
            self._name(sequence, table, position, table.write, self._key_at(sequence, position))
        self.pool.release(self.held_by(table))
        self._num_spare -= len(table.spares)
        table.unnamed, table.spares = [], []

    def spare(self, table: StateTable, count: int, num_needed: int) -> Columns[int]:
        """Give a sequence states for the tokens of rows with drafts, if it has none and `num_needed` stay free. All
        together get a small part of the pool: free states are those in which others find their prefixes."""
        is_too_much = (self._num_spare + count) * _SPARE_SHARE > self.plan.num_blocks
        if not self._keeps or table.spares or is_too_much or self.pool.num_free < count + num_needed:
            return ()
        table.spares = self.pool.allocate(count)
        self._num_spare += count
        return table.spares

    def begin_step(self, num_entering: int) -> None:
        self._num_wanted = num_entering
        kept, self._kept = self._kept, [each for each in self._kept if each.is_begun]
        for each in kept:
            if each.is_begun:
                continue
            if each.key is not None and each.table is not None and each.sequence is not None:
                self._name(each.sequence, each.table, each.position, each.state, each.key)
            self.pool.release([each.state])

    @property
    def holds_for_next_step(self) -> bool:
        return any(not each.is_begun for each in self._kept)

    def forget(self, keys: Iterable[bytes]) -> None:
        forgotten = set(keys)
        super().forget(forgotten)
        self._kept = [each._replace(key=None) if each.key in forgotten else each for each in self._kept]

    def forget_where(self, is_gone: Callable[[bytes], bool]) -> None:
        super().forget_where(is_gone)
        self.forget([each.key for each in self._kept if each.key is not None and is_gone(each.key)])

    def num_held(self, table: StateTable) -> int:
        return len(self.held_by(table))

    def held_by(self, table: StateTable) -> Columns[int]:
        return [table.write, *table.spares, *(state for _, state in table.unnamed)]

    def check_table(self, sequence: Sequence, table: StateTable) -> None:
        if table.start > max(sequence.num_computed, sequence.num_begun, sequence.horizon):
            raise RuntimeError(f"Sequence {sequence.id} writes a state from {table.start} on, beyond what it computes.")

    def check(self, tables: Iterable[StateTable], held: Columns[Columns[int]] = ()) -> None:
        self.pool.check([*map(self.held_by, tables), *([each.state] for each in self._kept), *held])
        self.second_tier.check()

    def _key_at(self, sequence: Sequence, position: int) -> bytes:
        """The key of the state after this many tokens: that of the block which ends there."""
        return key_of(sequence, position // self.block_size - 1, self.block_size)

    def _keep(self, sequence: Sequence, table: StateTable) -> None:
        """Keep the state that the sequence continues from."""
        position, state = table.start, table.before
        if position >= sequence.num_known:  # equal: written by this step, and perhaps first read by the next one
            table.unnamed.append((position, state))
        else:
            self._kept.append(Kept(state, position, self._key_at(sequence, position), table, sequence))

    def _drop_unfinished(self, sequence: Sequence) -> None:
        """Free the states that a chunk has kept, whose last layers will never be computed."""
        self.pool.release([each.state for each in self._kept if each.sequence is sequence and each.is_begun])
        self._kept = [each for each in self._kept if each.sequence is not sequence or not each.is_begun]

    def _name(self, sequence: Sequence, table: StateTable, position: int, state: int, key: bytes) -> None:
        """Let others find this state. If it is a rolling checkpoint, the previous one need not be found any more."""
        if not table.checkpoints.is_rolling(position):
            self.name(sequence, position // self.block_size - 1, state, key)
        elif position > table.newest:
            self.name(sequence, position // self.block_size - 1, state, key)
            if table.newest and (before := self.pool.find(table.newest_key)) is not None:
                self.pool.drop(before)
            table.newest, table.newest_key = position, key

    def _held(self, sequence: Sequence, found: Found) -> int:
        """Hold the found state, loaded into a free one if only the second tier has it."""
        (state,) = found.blocks
        if state is not None:
            self.pool.hold([state])
            return state
        key = self._key_at(sequence, found.length * self.block_size)
        self.second_tier.pin([key])
        (state,) = self.pool.allocate(1)
        self.second_tier.load(key, state)
        self.name(sequence, found.length - 1, state, key)
        return state
