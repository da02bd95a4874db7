"""A stand-in worker whose rows draft: what `ErraticDrafter` guesses is computed, checked and taken back.

What drafts leave behind is really there: hashes of wrong tokens in blocks, and states that the real tables
(`worker/steps/state_tables.py`) have chosen for each token.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy
from builders.erratic_drafts import ErraticDrafter
from msgspec.structs import replace

from penstock.protocol.layer_groups import GroupChanges, GroupPlan
from penstock.protocol.messages import Drafts, Fork, NewSlot, StepPlan, StepResult
from penstock.protocol.wire import column, values
from penstock.worker.drafting.proposer import Look
from penstock.worker.stand_in.contents import RowSpan, Segment, StateContents
from penstock.worker.stand_in.made_up import IsAllowed
from penstock.worker.stand_in.runner import AwaitMask, Slot, StandInWorker
from penstock.worker.steps.state_tables import StateTables
from penstock.worker.steps.step_rows import StepRows

_NO_DRAFT = 2**31 - 1  # a position


class TabledStates(StateContents):
    """Contents of states whose segments the real tables choose."""

    def __init__(self, plan: GroupPlan, block_size: int, verify: bool, num_slots: int) -> None:
        super().__init__(plan, verify)
        self.tables = StateTables(num_slots, plan.num_blocks, block_size)
        self.drafts: dict[int, list[int]] = {}  # of the step, by slot

    def _segments(self, rows: Sequence[RowSpan]) -> list[list[Segment]]:
        appended = [row.table.appended for row in rows]
        ends = numpy.cumsum([0, *map(len, appended)]).tolist()
        pairs = [pair for each in appended for pair in each]
        changes = GroupChanges(column(state for state, _ in pairs), column(ends), column(start for _, start in pairs))
        found = self.tables.advance(self._rows(rows), changes)
        starts, reads, writes, of_rows = (
            each.tolist() for each in (found.starts, found.reads, found.writes, found.of_rows)
        )
        segments: list[list[Segment]] = []
        for row, first, end in zip(rows, of_rows[:-1], of_rows[1:], strict=True):
            offset = row.start - starts[first]
            own = [Segment(reads[n], writes[n], starts[n] + offset, starts[n + 1] + offset) for n in range(first, end)]
            segments.append(own)
            row.table.appended, row.table.write = [], int(self.tables.writes[row.slot])
        return segments

    def _rows(self, rows: Sequence[RowSpan]) -> StepRows:
        slots, starts, ends, drafts = (
            numpy.array(each, numpy.int64)
            for each in (
                [row.slot for row in rows],
                [row.start for row in rows],
                [row.end for row in rows],
                [len(self.drafts.get(row.slot, ())) for row in rows],
            )
        )
        is_sampling = numpy.ones(len(rows), bool)
        return StepRows(slots, ends - starts, starts, ends, is_sampling, ~is_sampling, drafts)


class DraftingWorker(StandInWorker):
    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(**options)
        self._drafter = ErraticDrafter(seed, self.vocab_size)
        self._step = -1  # the one that these drafts are of
        self._drafts: dict[int, list[int]] = {}  # by slot
        plans, block_size = options["groups"], options["block_size"]
        self._states: dict[int, TabledStates] = {}  # by group
        for number, plan in enumerate(plans):
            if plan.kind == "state":
                self._states[number] = TabledStates(plan, block_size, self.verify, len(self.slots))
                self.groups[number] = self._states[number]

    def draft(self, plan: StepPlan) -> Drafts | None:
        """Draft for a step before which all others are computed; return what the engine must know."""
        rooms = values(plan.rooms)
        if self._step != plan.step:
            self._step, self._drafts = plan.step, {}
            for slot, room in zip(values(plan.slots), rooms):
                if room:
                    look = Look(slot, numpy.array(self._taken(slot, "drafts for").tokens), room)
                    [self._drafts[slot]] = self._drafter.drafts([look], 1)
        slots = values(plan.slots)
        rows = [row for row in values(plan.masked) if plan.rooms and rooms[row]]
        return Drafts(plan.step, rows, [column(self._drafts[slots[row]]) for row in rows]) if rows else None

    def step(self, plan: StepPlan, await_mask: AwaitMask | None = None) -> StepResult:
        self.draft(plan)
        self._drafts = {slot: drafts for slot, drafts in self._drafts.items() if drafts}
        result = super().step(plan, await_mask)
        if self._drafts:
            result.num_drafted = column(len(self._drafts.get(slot, ())) for slot in values(plan.slots))
        return result

    def _apply_rare(self, plan: StepPlan) -> None:
        super()._apply_rare(plan)
        for spare in plan.spares:
            self._states[spare.group].tables.spare(spare.slot, numpy.array(values(spare.states)))

    def _enter(self, new: NewSlot) -> None:
        super()._enter(new)
        self._drafter.enter(new.slot, new)
        for states in self._states.values():
            states.tables.empty(new.slot)

    def _fork(self, fork: Fork) -> None:
        super()._fork(fork)
        for group, states in self._states.items():
            states.tables.empty(fork.target)
            states.tables.fork(fork.target, numpy.array(values(fork.block_ids[group])))

    def _compute(self, plan: StepPlan, slots: array) -> tuple[list[Slot], list[int]]:
        counts = values(plan.num_tokens)
        for row, slot in enumerate(slots):
            if drafts := self._drafts.get(slot):
                own = self._taken(slot, "drafts for")
                assert own.num_computed + counts[row] == len(own.tokens), "only the last token is left to compute"
                own.first_draft = len(own.tokens)
                own.tokens.extend(drafts)
                counts[row] += len(drafts)
        for states in self._states.values():
            states.drafts = self._drafts
        return super()._compute(replace(plan, num_tokens=counts.tobytes()), slots)

    def _sample(
        self, step: int, rows: list[Slot], starts: list[int], allowed: dict[int, list[IsAllowed]]
    ) -> StepResult:
        result = super()._sample(step, rows, starts, allowed)
        slots = {id(slot): number for number, slot in enumerate(self.slots) if slot is not None}
        left, counts, kept = iter(values(result.sampled)), values(result.num_sampled), array("i")
        for number, row in enumerate(rows):
            drawn = [next(left) for _ in range(counts[number])]
            if drafts := self._drafts.get(slots[id(row)]):
                drawn = drawn[: 1 + _num_right(drafts, drawn)]
                self._take_back(slots[id(row)], row, starts[number] + 1, drawn)
            counts[number] = len(drawn)
            kept.extend(drawn)
        quota = list(counts)
        logprobs = []
        for part in result.logprobs:
            quota[part.owner] -= 1
            if quota[part.owner] >= 0:
                logprobs.append(part)
        return replace(result, num_sampled=counts.tobytes(), sampled=kept.tobytes(), logprobs=logprobs)

    def _take_back(self, slot: int, row: Slot, start: int, drawn: list[int]) -> None:
        """Go on from the tokens that count, which follow the first `start` ones."""
        row.tokens = row.tokens[:start]
        row.tokens.extend(drawn)
        row.num_computed = end = len(row.tokens) - 1
        row.first_draft = _NO_DRAFT
        del row.chain[end:]
        for states in self._states.values():
            states.tables.take_back(slot, end)


def _num_right(drafts: list[int], drawn: list[int]) -> int:
    return next((place for place, pair in enumerate(zip(drafts, drawn)) if pair[0] != pair[1]), len(drafts))
