"""For each slot, the state of one group of layers that is read next and the one that is written; all on the host.

Appending state `n` at position `p` means: from `p` on, read the state written so far, and write to `n`. So a row's
tokens are divided into segments, each of which first reads one state and then writes one.
"""

from dataclasses import field

import numpy

from ...kernels.states import NO_STATE, Segments
from ...protocol.layer_groups import GroupChanges
from ...records import dataclass
from ..device import Device
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


class StateTables:
    def __init__(self, num_slots: int, num_states: int, device: Device) -> None:
        self.num_states = num_states
        self.device = device
        self.reads = numpy.full(num_slots, NO_STATE, numpy.int32)  # before the next token
        self.writes = numpy.full(num_slots, NO_STATE, numpy.int32)  # after it

    def empty(self, slot: int) -> None:
        self.reads[slot] = self.writes[slot] = NO_STATE

    def fork(self, slot: int, states: Ints) -> None:
        """The slot continues in a copy of its parent's state."""
        require(len(states) == 1, f"forks into slot {slot} with {len(states)} states, and it needs one")
        self._check_known(states)
        self.reads[slot] = self.writes[slot] = states[0]

    def advance(self, rows: StepRows, changes: GroupChanges) -> Segments:
        """Return the step's segments, and update the slots' states to those after the step."""
        states, offsets, starts = (column(each) for each in (changes.block_ids, changes.block_offsets, changes.starts))
        check_offsets(rows.slots, states, offsets)
        require(len(states) == len(starts), f"has {len(states)} states and {len(starts)} positions of them")
        self._check_known(states)
        columns, first = _Columns(), 0
        each_row = zip(rows.slots.tolist(), rows.starts.tolist(), rows.ends.tolist(), strict=True)
        for row, (slot, start, end) in enumerate(each_row):
            appended = slice(offsets[row], offsets[row + 1])
            pairs = list(zip(states[appended].tolist(), starts[appended].tolist(), strict=True))
            self._add_row(columns, slot, first - start, (start, end), pairs)
            first += end - start
        columns.starts.append(first)
        parts = (columns.starts, columns.reads, columns.writes, columns.of_rows)
        return Segments(*(self.device.put(numpy.array(part, numpy.int32)) for part in parts))

    def _add_row(
        self, columns: _Columns, slot: int, offset: int, span: tuple[int, int], appended: list[tuple[int, int]]
    ) -> None:
        """Add the segments of tokens [position, end); the token at position p is number offset + p of the step."""
        position, end = span
        read, write = int(self.reads[slot]), int(self.writes[slot])
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

    def _check_known(self, states: Ints) -> None:
        require(all_within(states, self.num_states), f"names a state outside 0..{self.num_states - 1}")
