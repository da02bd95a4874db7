"""The stand-in worker's memory for each group of layers: tables, and with `verify` everything computed into it.

It stores chained hashes of tokens instead of keys, values and states. A position in a block has the hash that ends with
its token, a state the hash of all tokens that it has seen. Values that a row reads are compared with its own history.
"""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...protocol.layer_groups import ABSENT, GroupPlan
from ..plan_error import PlanError

_EMPTY = -1  # an entry that nothing was computed into
_BEGUN = -2  # one that only some layers were computed into
NONE = -1  # no state: zeros


class RowSpan(NamedTuple):
    """The tokens of one row in a step."""

    slot: int
    table: Any
    start: int
    end: int
    chain: list[int]  # the hash after each token of the history, with `verify`


class Contents:
    """One group's memory. Each block or state has `width` hashes."""

    width = 1

    def __init__(self, plan: GroupPlan, verify: bool) -> None:
        self.num_blocks = plan.num_blocks
        self.num_cells = plan.num_cpu_blocks
        self.verify = verify
        self.contents = [_EMPTY] * (plan.num_blocks * self.width if verify else 0)
        self.cells = [_EMPTY] * (plan.num_cpu_blocks * self.width if verify else 0)

    def move(self, saves: array, loads: array) -> None:
        """Copy between memory and cells."""
        self.within(saves[::2] + loads[1::2])
        cells, targets = saves[1::2] + loads[::2], (saves[1::2], loads[1::2])
        if cells and not 0 <= min(cells) <= max(cells) < self.num_cells:
            raise PlanError(f"The plan names a cell outside 0..{self.num_cells - 1}: {cells.tolist()}.")
        if any(len(set(each)) != len(each) for each in targets):
            raise PlanError(f"The plan fills a cell or a block twice: {saves.tolist()}, {loads.tolist()}.")
        self._copy(saves, self.contents, self.cells)
        self._copy(loads, self.cells, self.contents)

    def copy(self, pairs: array) -> None:
        self._copy(self.within(pairs), self.contents, self.contents)

    def within(self, blocks: array, least: int = 0) -> array:
        if blocks and not least <= min(blocks) <= max(blocks) < self.num_blocks:
            raise PlanError(f"The plan names a block outside 0..{self.num_blocks - 1}: {blocks.tolist()}.")
        return blocks

    def _copy(self, pairs: array, sources: list[int], targets: list[int]) -> None:
        if self.verify:
            size = self.width
            for source, target in zip(pairs[::2], pairs[1::2], strict=True):
                targets[target * size : (target + 1) * size] = sources[source * size : (source + 1) * size]


class BlockContents(Contents):
    """Contents of layers with attention: a table is a list of blocks."""

    def __init__(self, plan: GroupPlan, block_size: int, verify: bool) -> None:
        self.width = block_size
        self.window = plan.window
        self._least = 0 if plan.window is None else ABSENT
        super().__init__(plan, verify)

    def table(self, block_ids: array) -> list[int]:
        return self.within(block_ids, self._least).tolist()

    def append(self, table: list[int], block_ids: array, starts: array) -> None:
        table += block_ids

    def check_ids(self, block_ids: array, starts: array) -> None:
        self.within(block_ids, self._least)
        if starts:
            raise PlanError(f"The plan says where blocks begin to be written, and they are no states: {starts}.")

    def reach(self, table: list[int]) -> int:
        return len(table) * self.width

    def compute(self, rows: Sequence[RowSpan]) -> None:
        """All rows write before any reads, as in each layer of a model."""
        for row in rows:
            self._write(row)
        for row in rows:
            self._read(row)

    def compute_layers(self, row: RowSpan, is_first: bool, is_last: bool) -> None:
        """Compute some layers of a row alone, which read what was computed before it, as all of them do."""
        if not self.verify:
            return
        if is_first:
            self._write(row._replace(chain=[_BEGUN] * row.end))
        self._read(row._replace(chain=row.chain[: row.start] + [_BEGUN] * (row.end - row.start)))
        if is_last:
            self._write(row)

    def _write(self, row: RowSpan) -> None:
        for position in range(row.start, row.end):
            index, offset = divmod(position, self.width)
            if row.table[index] == ABSENT:
                raise PlanError(f"Slot {row.slot} writes position {position} into a block that it doesn't have.")
            self.contents[row.table[index] * self.width + offset] = row.chain[position]

    def _read(self, row: RowSpan) -> None:
        size = self.width
        first = 0 if self.window is None else max(0, row.start - self.window + 1)
        for index in range(first // size, -(-row.end // size)):
            begin, end = max(first, index * size), min(row.end, (index + 1) * size)
            offset = row.table[index] * size - index * size
            own = row.chain[begin:end]
            if row.table[index] == ABSENT or self.contents[offset + begin : offset + end] != own:
                raise PlanError(
                    f"Slot {row.slot} reads block {row.table[index]} for its tokens from {begin} on, and other "
                    "tokens were computed into it."
                )


class StateSlot:
    """The states that a sequence reads and writes next; `appended`: states and the positions where writing begins."""

    __slots__ = ("appended", "read", "write")

    def __init__(self, state: int = NONE) -> None:
        self.read = self.write = state
        self.appended: list[tuple[int, int]] = []


class Segment(NamedTuple):
    read: int
    write: int
    start: int
    end: int


class StateContents(Contents):
    """Contents of layers that keep a state."""

    _layered: list[Segment]  # of the chunk that is computed layer by layer

    def table(self, block_ids: array) -> StateSlot:
        if len(block_ids) > 1:
            raise PlanError(f"The plan forks a sequence with {len(block_ids)} states, and it goes on in one.")
        return StateSlot(self.within(block_ids)[0]) if block_ids else StateSlot()

    def append(self, table: StateSlot, block_ids: array, starts: array) -> None:
        table.appended += zip(block_ids, starts, strict=True)

    def check_ids(self, block_ids: array, starts: array) -> None:
        self.within(block_ids)
        if len(block_ids) != len(starts):
            raise PlanError(f"The plan appends {len(block_ids)} states with {len(starts)} positions.")

    def reach(self, table: StateSlot) -> int | None:
        return None if table.appended or table.write != NONE else 0

    def compute(self, rows: Sequence[RowSpan]) -> None:
        """Compute rows in any order: no row may read or write a state that another writes in the same step."""
        segments = self._segments(rows)
        if not self.verify:
            return
        writers: dict[int, int] = {}
        for row, own in zip(rows, segments, strict=True):
            for state in {segment.write for segment in own}:
                if writers.setdefault(state, row.slot) != row.slot:
                    raise PlanError(f"Slots {writers[state]} and {row.slot} write state {state} in one step.")
        for row, own in zip(rows, segments, strict=True):
            if writers.get(own[0].read, row.slot) != row.slot:
                raise PlanError(f"Slot {row.slot} reads state {own[0].read}, which another writes in the same step.")
            for segment in own:
                self._check_read(row, segment)
                self.contents[segment.write] = row.chain[segment.end - 1]

    def compute_layers(self, row: RowSpan, is_first: bool, is_last: bool) -> None:
        """Compute some layers of a row alone, which read and write the same states as all of them do."""
        if is_first:
            (self._layered,) = self._segments([row])
        written = {segment.write for segment in self._layered} if self.verify else set()
        if written and (is_first or self._layered[0].read not in written):
            self._check_read(row, self._layered[0])
        for state in written:
            if not is_first and self.contents[state] != _BEGUN:
                raise PlanError(f"State {state} was written while layers of slot {row.slot} were left to compute.")
            self.contents[state] = _BEGUN
        for segment in self._layered if is_last and self.verify else ():
            self.contents[segment.write] = row.chain[segment.end - 1]

    def _segments(self, rows: Sequence[RowSpan]) -> list[list[Segment]]:
        """Split each row's tokens where another state is written, and update its slot for the next step."""
        return [_segments(row) for row in rows]

    def _check_read(self, row: RowSpan, segment: Segment) -> None:
        is_right = segment.start == 0
        if segment.read != NONE:
            is_right = segment.start > 0 and self.contents[segment.read] == row.chain[segment.start - 1]
        if not is_right:
            raise PlanError(
                f"Slot {row.slot} goes on from state {segment.read} at token {segment.start}, and the state has seen "
                "other tokens than those before it."
            )


def _segments(row: RowSpan) -> list[Segment]:
    """Split the row's tokens where another state is written, and update the slot for the next step."""
    table: StateSlot = row.table
    segments: list[Segment] = []
    begin = row.start
    for state, start in table.appended:
        if start > row.end:
            raise PlanError(f"Slot {row.slot} writes state {state} from {start} on, and the step ends at {row.end}.")
        if start > begin:
            segments.append(Segment(table.read, table.write, begin, start))
            begin = start
        table.read, table.write = table.write, state
    if begin < row.end:
        segments.append(Segment(table.read, table.write, begin, row.end))
        table.read = table.write
    table.appended = []
    return segments


AnyContents = BlockContents | StateContents


def contents_of(plan: GroupPlan, block_size: int, verify: bool) -> AnyContents:
    return StateContents(plan, verify) if plan.kind == "state" else BlockContents(plan, block_size, verify)
