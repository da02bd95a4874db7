"""The memory of sequences: finds computed prefixes, allocates blocks and states, and publishes them for others to find.

A model's layers form groups that keep different things for a sequence (docs/layer-groups.md): the kinds are
`full_blocks.py`, `window_blocks.py` and `states.py`. This file combines them: a sequence is admitted, grows, forks and
leaves in all groups or in none, and a prefix is found as far as all groups have what its next token needs. A hit stops
one token short, since the last token must be computed to sample the next.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable
from collections.abc import Sequence as Columns
from dataclasses import dataclass
from typing import Any

from ...protocol.layer_groups import CHECKPOINT_EVERY, GroupPlan
from ...protocol.messages import Prompt
from ..request import Sequence
from .disk import Disk
from .full_blocks import FullBlocks
from .group_memory import NOTHING, Appended, Found, GroupMemory, Need, capacity, smallest
from .keys import derived_keys, mark_in, mark_of, root_key
from .offload import NO_MOVES, Moves
from .states import States
from .time_to_live import Clock, TimeToLive
from .window_blocks import WindowBlocks

# Additions to tables in a step, by group; empty if no group's tables get anything.
Additions = Columns[Appended]


def together(first: Additions, second: Additions) -> Additions:
    """Both, one after the other."""
    if not (first and second):
        return first or second
    return [
        Appended([*one.block_ids, *two.block_ids], [*one.starts, *two.starts])
        for one, two in zip(first, second, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Match:
    """The longest prefix that all groups have."""

    length: int  # in blocks
    found: list[Found]  # by group
    attention_length: int  # how far all groups except those of states have it
    is_coming: bool  # whether the step being planned makes a longer one, which the next step finds


@dataclass(frozen=True, slots=True)
class ForkedTables:
    """A fork's data for the workers, by group."""

    block_ids: list[Columns[int]]  # its whole table
    copies: list[Columns[int]]  # pairs of source and target


class Cache:
    def __init__(
        self,
        groups: Columns[GroupPlan],
        block_size: int,
        *,
        shares_prefixes: bool = True,
        stretches: tuple[int, ...] = (),
        time_to_live: TimeToLive | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        num_disks: int = 0,
        clock: Clock = time.monotonic,
    ) -> None:
        """`num_disks`: one for each rank if blocks are kept on disk, else 0."""
        self.block_size = block_size
        self.shares_prefixes = shares_prefixes
        self._shared_root = root_key(None, None, None)
        self.stretches = stretches
        self.capacity = min(capacity(group, block_size) for group in groups)  # in tokens of one sequence
        self.groups: list[GroupMemory[Any]] = []
        for plan in groups:
            if plan.kind == "state":
                self.groups.append(States(plan, block_size, time_to_live, checkpoint_every))
            else:
                kind = FullBlocks if plan.window is None else WindowBlocks
                self.groups.append(kind(plan, block_size, time_to_live))
        self._states = [group for group in self.groups if isinstance(group, States)]
        self._attention = [group for group in self.groups if not isinstance(group, States)]
        self.disk = Disk(self.groups, block_size, num_disks, clock) if num_disks else None
        self._gives_back = any(isinstance(group, WindowBlocks) for group in self.groups)

    def root_of(self, prompt: Prompt, adapter: int | str | None = None) -> bytes:
        """The first link of a prompt's keys; `adapter` is the key of its LoRA adapter."""
        if self.shares_prefixes and adapter is None and prompt.params.cache_salt is None:
            return self._shared_root
        # Without prefix caching the samples of one request still share their prompt.
        only_request = None if self.shares_prefixes else prompt.request_id
        return root_key(prompt.params.cache_salt, adapter, only_request)

    def outgrown(self, num_tokens: int) -> str:
        """The error message for a sequence that has outgrown a whole pool."""
        group = smallest((group.plan for group in self.groups), self.block_size)
        return (
            f"The request has grown to {num_tokens:,} tokens and fills the whole KV cache "
            f"({group.num_blocks:,} blocks of {self.block_size}). "
            "Use a smaller max_tokens or raise kv_cache_memory."
        )

    # --- finding a prefix -------------------------------------------------------------------------------------------

    def match(self, sequence: Sequence) -> Match:
        """Find its longest computed prefix; takes no reference yet."""
        self._stretch(sequence)
        sequence.claim_ahead(min([self.capacity, *self.stretches[sequence.stretch : sequence.stretch + 1]]))
        most = 0 if sequence.computes_every_row else (sequence.num_known - 1) // self.block_size
        found, longest = self._agreed(sequence, self._attention, [], most)
        found, length = self._agreed(sequence, self._states, found, longest)
        is_coming = any(group.is_coming(sequence, length, longest) for group in self._states)
        return Match(length, found, longest, is_coming)

    def _agreed(
        self, sequence: Sequence, further: Columns[GroupMemory[Any]], found: list[Found], most: int
    ) -> tuple[list[Found], int]:
        """The longest prefix that these groups and the ones before them all have, up to this many blocks, and its
        length."""
        for group in further:
            found.append(group.find(sequence, most))
            most = found[-1].length
        while any(each.length > most for each in found):
            for number, each in enumerate(found):
                found[number] = self.groups[number].cut(sequence, each, most)
                most = found[number].length
        return found, most

    def needs(self, sequence: Sequence, match: Match) -> list[Need]:
        """The cost of admitting the sequence, for each group."""
        return [group.need(sequence, found) for group, found in zip(self.groups, match.found, strict=True)]

    # --- a sequence comes, grows and leaves -------------------------------------------------------------------------

    def begin_step(self, num_entering: int) -> None:
        """Begin planning a step that may admit this many sequences: everything that the previous step wrote can now
        be found."""
        for group in self._states:
            group.begin_step(num_entering)
        if self.disk is not None:
            self.disk.stores.begin_step()

    @property
    def holds_for_next_step(self) -> bool:
        """True if some states are free for the next step, but not for the one being planned."""
        return any(group.holds_for_next_step for group in self._states)

    def admit(self, sequence: Sequence, match: Match) -> Additions:
        """Make tables that begin with the match. Returns their content."""
        branch = match.attention_length * self.block_size if match.attention_length > match.length else 0
        additions = []
        sequence.tables = []
        for group, found in zip(self.groups, match.found, strict=True):
            table, appended = group.admit(sequence, found, branch)
            sequence.tables.append(table)
            additions.append(appended)
        sequence.num_computed = match.length * self.block_size
        return additions

    def has_room(self, sequence: Sequence, end: int) -> bool:
        """Whether it can be computed up to this position."""
        for group, table in zip(self.groups, sequence.tables):
            if group.missing(table, end) > group.pool.num_free:
                return False
        return True

    def reach(self, sequence: Sequence, end: int) -> int:
        """The position up to which it can be computed with the free blocks, `end` at most."""
        for group, table in zip(self.groups, sequence.tables):
            end = group.reach(table, end)
        return end

    def extend(self, sequence: Sequence, end: int) -> Additions:
        """Append to its tables what it needs to be computed from its current position to this one."""
        additions = []
        is_more = False
        for group, table in zip(self.groups, sequence.tables):
            appended = group.extend(sequence, table, end)
            is_more = is_more or appended is not NOTHING
            additions.append(appended)
        self._set_horizon(sequence, end)
        return additions if is_more else ()

    def spare_states(
        self, sequence: Sequence, count: int, num_needed: int
    ) -> tuple[int, list[tuple[int, Columns[int]]]]:
        """Let a sequence keep a state for each token of a row with drafts, if `num_needed` of each group stay free.
        Returns how many drafts its rows may have, and the states that are new to it, by group."""
        # So a row ends one block at most, and the state after it isn't overwritten by that after another.
        most = count = min(count, self.block_size)
        given = []
        for number, (group, table) in enumerate(zip(self.groups, sequence.tables)):
            if isinstance(group, States):
                if states := group.spare(table, count, num_needed):
                    given.append((number, states))
                most = min(most, len(table.spares))
        return max(0, most - 1), given

    @property
    def keeps_states(self) -> bool:
        return bool(self._states)

    def give_back(self, sequence: Sequence) -> None:
        """Release what no future token reads, before anything is planned that could overwrite it."""
        if self._gives_back:
            for group, table in zip(self.groups, sequence.tables):
                group.give_back(sequence, table)

    def can_fork(self) -> bool:
        return all(group.pool.num_free for group in self.groups)

    def fork(self, parent: Sequence, child: Sequence) -> ForkedTables:
        """Let the child continue from what the parent has computed."""
        forked = ForkedTables([], [])
        child.num_computed = parent.num_computed
        child.tables = []
        for group, table in zip(self.groups, parent.tables):
            own, block_ids, copies = group.fork(parent, table)
            child.tables.append(own)
            forked.block_ids.append(block_ids)
            forked.copies.append(copies)
        num_full = parent.num_computed // self.block_size
        child.output_keys = parent.output_keys[: max(0, num_full - parent.num_prompt // self.block_size)]
        self._set_horizon(child, child.num_computed + 1)
        return forked

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Let others find the full blocks of its first `num_tokens`, which are known and planned."""
        for group, table in zip(self.groups, sequence.tables):
            group.publish(sequence, table, num_tokens)

    def release(self, sequence: Sequence, num_tokens: int) -> None:
        """Publish its first `num_tokens` and take everything back at once: plans in flight still read it before a
        later plan can overwrite it."""
        for group, table in zip(self.groups, sequence.tables):
            group.release(sequence, table, num_tokens)
        sequence.tables = []
        if self.disk is not None and num_tokens:
            self.disk.stores.note(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Remove the keys of everything that this sequence has computed, because it failed."""
        keys = derived_keys(sequence)
        for group in self.groups:
            group.forget(keys)
        if self.disk is not None:
            self.disk.forget(keys)

    def show_adapter(self, adapter: int | str | None) -> None:
        """An adapter with this key has been loaded: what the disk has of it can be found."""
        for group in self.groups:
            group.on_disk.show(mark_of(adapter))

    def forget_adapter(self, adapter: int | str | None) -> None:
        """It has been unloaded: nobody can find what was computed with it."""
        mark = mark_of(adapter)

        def is_gone(key: bytes) -> bool:
            return mark_in(key) == mark

        for group in self.groups:
            group.forget_where(is_gone)
            group.on_disk.hide(mark)
        if self.disk is not None:
            self.disk.fetches.forget_where(is_gone)

    # --- positions --------------------------------------------------------------------------------------------------

    def has_outgrown_its_stretch(self, sequence: Sequence) -> bool:
        """Whether its next token, and with it all earlier ones, need positions rotated for a greater length."""
        return bool(self.stretches) and sequence.num_computed >= self.stretches[sequence.stretch]

    def bound(self, sequence: Sequence) -> int:
        """Where its positions end: with its last token, which is never computed, or with the length that they are
        rotated for."""
        most = sequence.max_total - 1
        return min(most, self.stretches[sequence.stretch]) if self.stretches else most

    def rotation_start(self, sequence: Sequence) -> int:
        """The index in the rotary table at which its positions begin."""
        return sum(self.stretches[: sequence.stretch])

    def _stretch(self, sequence: Sequence) -> None:
        """Choose the length that its positions are rotated for from its known tokens, before any is computed."""
        stretch = bisect_left(self.stretches, sequence.num_known) if self.stretches else 0
        if stretch != sequence.stretch:
            sequence.stretch = stretch
            sequence.output_keys = []

    def _set_horizon(self, sequence: Sequence, end: int) -> None:
        """Set the horizon: all groups have what it needs up to the end of the block that contains `end`."""
        horizon, bound = -(-end // self.block_size) * self.block_size, self.bound(sequence)
        sequence.horizon = horizon if horizon < bound else bound

    # --- plans and figures ------------------------------------------------------------------------------------------

    def take_moves(self) -> list[Moves]:
        """The moves between pool and second tier for the next plan, by group."""
        tiers = (group.second_tier for group in self.groups)
        return [tier.take_moves() if tier.num_cells else NO_MOVES for tier in tiers]

    def num_held(self, sequences: Iterable[Sequence]) -> list[int]:
        """How many blocks these sequences hold, by group."""
        held = [0] * len(self.groups)
        for sequence in sequences:
            for number, (group, table) in enumerate(zip(self.groups, sequence.tables)):
                held[number] += group.num_held(table)
        return held

    @property
    def num_saved(self) -> int:
        return sum(group.second_tier.num_saved for group in self.groups)

    @property
    def num_loaded(self) -> int:
        return sum(group.second_tier.num_loaded for group in self.groups)

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raise unless both tiers of all groups are consistent and only these sequences hold anything."""
        running = list(sequences)
        for number, group in enumerate(self.groups):
            for sequence in running:
                group.check_table(sequence, sequence.tables[number])
            held = [] if self.disk is None else self.disk.held_by(number)
            group.check([sequence.tables[number] for sequence in running], held)
