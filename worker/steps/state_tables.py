"""For each slot, the state of one group of layers that is read next and the one that is written; all on the host.

Appending state `n` at position `p` means: from `p` on, read the state written so far, and write to `n`. So a row's
tokens are divided into segments, each of which first reads one state and then writes one.

The tokens of a row with drafts are segments of their own. Each writes one of the slot's spare states, so that the state
after the last accepted one is still there. Only a token that ends a block writes the slot's own state, since that may
be kept: an appended state may also come for a position that the row turns out not to have reached, and waits for it.
"""

from dataclasses import field

import numpy

from ...kernels.states import NO_STATE, Segments
from ...protocol.layer_groups import GroupChanges
from ...records import dataclass
from ..plan_error import require
from .block_tables import check_offsets
from .step_rows import Ints, StepRows, all_within, column


@dataclass
class _Columns:
    """The columns of `Segments` under construction."""

    starts: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    of_rows: list[int] = field(default_factory=lambda: [0])

    def add(self, start: int, read: int, write: int) -> None:
        self.starts.append(start)
        self.reads.append(read)
        self.writes.append(write)


@dataclass
class _Drafted:
    """A row with drafts, until it is known how many of its tokens count."""

    start: int
    states: list[int]  # after each token
    write: int  # the slot's own state before it
    appended: list[tuple[int, int]]  # states, and the positions from which they are written


class StateTables:
    def __init__(self, num_slots: int, num_states: int, block_size: int) -> None:
        self.num_states = num_states
        self.block_size = block_size
        self.reads = numpy.full(num_slots, NO_STATE, numpy.int32)  # before the next token
        self.writes = numpy.full(num_slots, NO_STATE, numpy.int32)  # after it
        self.spares: dict[int, list[int]] = {}  # of slots that may have drafts
        self.awaiting: dict[int, list[tuple[int, int]]] = {}  # appended beyond the last token that counts
        self._drafted: dict[int, _Drafted] = {}

    def empty(self, slot: int) -> None:
        self.reads[slot] = self.writes[slot] = NO_STATE
        for of_slot in (self.spares, self.awaiting, self._drafted):
            of_slot.pop(slot, None)

    def spare(self, slot: int, states: Ints) -> None:
        """Give a slot states for the tokens of rows with drafts."""
        self._check_known(states)
        self.spares[slot] = states.tolist()

    def take_back(self, slot: int, end: int) -> None:
        """Go on from the state at position `end`, within the slot's last row."""
        drafted = self._drafted.pop(slot)
        self.reads[slot] = drafted.states[end - 1 - drafted.start]
        reached = [state for state, start in drafted.appended if start <= end]
        self.writes[slot] = reached[-1] if reached else drafted.write
        if len(reached) < len(drafted.appended):
            self.awaiting[slot] = drafted.appended[len(reached) :]

    def fork(self, slot: int, states: Ints) -> None:
        """The slot continues in a copy of its parent's state."""
        require(len(states) == 1, f"forks into slot {slot} with {len(states)} states, and it needs one")
        self._check_known(states)
        self.reads[slot] = self.writes[slot] = states[0]

    def advance(self, rows: StepRows, changes: GroupChanges) -> Segments:
        """Return the step's segments, on the host, and update the slots' states to those after the step."""
        states, offsets, starts = (column(each) for each in (changes.block_ids, changes.block_offsets, changes.starts))
        check_offsets(rows.slots, states, offsets)
        require(len(states) == len(starts), f"has {len(states)} states and {len(starts)} positions of them")
        self._check_known(states)
        columns, first = _Columns(), 0
        each_row = zip(rows.slots.tolist(), rows.starts.tolist(), rows.ends.tolist(), strict=True)
        for row, (slot, start, end) in enumerate(each_row):
            appended = slice(offsets[row], offsets[row + 1])
            pairs = self.awaiting.pop(slot, [])
            pairs += zip(states[appended].tolist(), starts[appended].tolist(), strict=True)
            add_row = self._add_drafted if slot in self.spares and rows.num_drafts[row] else self._add_row
            add_row(columns, slot, first - start, (start, end), pairs)
            first += end - start
        columns.starts.append(first)
        parts = (columns.starts, columns.reads, columns.writes, columns.of_rows)
        longest = int(rows.num_tokens.max(initial=0))
        return Segments.of((numpy.array(part, numpy.int32) for part in parts), longest)

    def _add_row(
        self, columns: _Columns, slot: int, offset: int, span: tuple[int, int], appended: list[tuple[int, int]]
    ) -> None:
        """Add the segments of tokens [position, end); the token at position p is number offset + p of the step."""
        position, end = span
        read, write = int(self.reads[slot]), int(self.writes[slot])
        if slot in self.spares and (later := [each for each in appended if each[1] > end]):
            self.awaiting[slot] = later
            appended = appended[: -len(later)]
        for state, start in [*appended, (NO_STATE, end)]:
            require(start <= end, f"writes a state of slot {slot} from {start} on, and its tokens end at {end}")
            if start > position:
                require(write != NO_STATE, f"computes slot {slot} from {position} on with no state to write")
                columns.add(offset + position, read, write)
                position, read = start, write
            if state != NO_STATE:
                read, write = write, state
        columns.of_rows.append(len(columns.reads))
        self.reads[slot], self.writes[slot] = read, write

    def _add_drafted(
        self, columns: _Columns, slot: int, offset: int, span: tuple[int, int], appended: list[tuple[int, int]]
    ) -> None:
        """Add a segment for each token of a row with drafts."""
        (start, end), spares = span, self.spares[slot]
        require(end - start <= len(spares), f"drafts {end - start - 1} tokens for slot {slot} of {len(spares)} spares")
        read, write = int(self.reads[slot]), int(self.writes[slot])
        left = list(appended)
        if left and left[0][1] == start:  # the token before has written the state that is kept
            write = left.pop(0)[0]
        drafted = self._drafted[slot] = _Drafted(start, [], write, left.copy())
        for position in range(start, end):
            is_border = (position + 1) % self.block_size == 0
            after = write if is_border else spares[position - start]
            columns.add(offset + position, read, after)
            drafted.states.append(after)
            read = after
            if left and left[0][1] == position + 1:
                write = left.pop(0)[0]
        columns.of_rows.append(len(columns.reads))

    def _check_known(self, states: Ints) -> None:
        require(all_within(states, self.num_states), f"names a state outside 0..{self.num_states - 1}")
