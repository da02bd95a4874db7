"""Drafts from heads that read the model's hidden states: its own for further tokens (MTP), or EAGLE-3's.

A head reads the hidden states of the model's last step, so it computes each step's tokens when the next one is
launched, before those states are written over. At position t it reads the hidden state there and token t + 1: its
history is the sequence's without the first token. That computation gives the first draft; for each further one it
reads its own output, and what it then keeps of these positions is replaced once the model has computed them.
"""

from collections.abc import Callable
from typing import Protocol

import numpy

from ....kernels.arrays import Array
from ....protocol.messages import NewSlot, StepPlan, StepResult
from ....protocol.wire import TOKEN_BYTES, values
from ...steps.drafts import StepDrafts
from ...steps.step_rows import Ints
from ...steps.step_rows import column as read_column
from ..proposer import NOTHING, Guess, Look
from .draft_model import DraftModel, Following


class ComputeHead(Protocol):
    def __call__(self, plan: StepPlan, hidden: Array, *, reads_model: bool) -> tuple[StepResult, Array]:
        """Compute a step from hidden states, [T, hidden], which are the model's or the head's own. Returns the result
        and the head's output, likewise."""


class DraftHeads(DraftModel):
    def __init__(self, name: str, compute: ComputeHead, hidden: Callable[[int], Array], following: Following) -> None:
        """`hidden` returns the hidden states of so many tokens of the model's last step."""
        super().__init__(lambda plan: StepResult(0, b"", b"", 0.0), following)
        self.name = name  # of the method
        self._compute_head = compute
        self._hidden = hidden
        self._rows: tuple[Ints, Ints, Ints] | None = None  # of the last step: slots, first positions, numbers of tokens
        self._first: dict[int, int] = {}  # by slot, the first draft
        self._outputs: dict[int, Array] = {}  # by slot, the head's output with which it was found

    def follow(self, plan: StepPlan) -> None:
        rooms = read_column(plan.rooms) if plan.rooms else numpy.zeros(0, numpy.int64)
        drafting = {slot for slot, room in zip(values(plan.slots), rooms.tolist()) if room}
        self._first.clear()
        self._outputs.clear()
        if self._rows is not None:
            self._compute_rows(*self._rows, drafting)
        self._rows = None
        self._take_in(plan)

    def launch(self, plan: StepPlan, drafts: StepDrafts | None) -> None:
        """Note the rows of a step that is launched now; its table is still that before it."""
        slots, counts = read_column(plan.slots), read_column(plan.num_tokens)
        if drafts is not None:
            counts += drafts.num_drafted(len(slots))
        entering = {new.slot: new.num_computed for new in plan.new}
        computed = self._followed.num_computed
        starts = [entering.get(slot, int(computed[slot])) for slot in slots.tolist()]
        self._rows = (slots, numpy.array(starts, numpy.int64), counts) if len(slots) else None

    def guess(self, looks: list[Look]) -> list[Guess]:
        rooms = {
            look.slot: room
            for look in looks
            if (room := self._room(look, self._most or 1)) > 0 and look.slot in self._first
        }
        drafts = {slot: [self._first[slot]] for slot in rooms}
        slots = [slot for slot in rooms if rooms[slot] > 1]
        while slots:
            plan = self._plan(slots, [1] * len(slots))
            hidden = numpy.stack([self._outputs[slot] for slot in slots])
            found = self._drawn_from(plan, slots, hidden, reads_model=False)
            for slot, token in found:
                drafts[slot].append(token)
            slots = [slot for slot, _ in found if len(drafts[slot]) < rooms[slot]]
        guesses = (drafts.get(look.slot, []) for look in looks)
        return [Guess(tokens, [1.0] * len(tokens)) if tokens else NOTHING for tokens in guesses]

    def _compute_rows(self, slots: Ints, starts: Ints, counts: Ints, drafting: set[int]) -> None:
        """Compute what counts of the last step's rows; those that may draft draw their first draft."""
        firsts = numpy.cumsum(counts) - counts
        rows = [row for row, slot in enumerate(slots.tolist()) if self._table.is_taken[slot]]
        ends = numpy.minimum(starts + counts, self._followed.num_computed[slots])
        rows = [row for row in rows if ends[row] > starts[row]]
        if not rows:
            return
        for row in rows:
            self._read_from(int(slots[row]), int(starts[row]), draws=slots[row] in drafting)
        lengths = ends[rows] - starts[rows]
        tokens = numpy.concatenate([firsts[row] + numpy.arange(ends[row] - starts[row]) for row in rows])
        own = slots[rows].tolist()
        hidden = self._hidden(int(counts.sum()))[tokens]
        self._first.update(self._drawn_from(self._plan(own, lengths), own, hidden, reads_model=True))

    def _drawn_from(
        self, plan: StepPlan, slots: list[int], hidden: Array, *, reads_model: bool
    ) -> list[tuple[int, int]]:
        """Compute a step; return the token of each slot that drew one, and keep the output at its place."""
        result, output = self._compute_head(plan, hidden, reads_model=reads_model)
        lasts = numpy.cumsum(read_column(plan.num_tokens)) - 1
        drawn = [number for number, count in enumerate(values(result.num_sampled)) if count]
        for number in drawn:
            self._outputs[slots[number]] = output[lasts[number]].copy()
        return [(slots[number], token) for number, token in zip(drawn, values(result.sampled))]

    def _read_from(self, slot: int, start: int, *, draws: bool) -> None:
        """Take over the tokens behind position `start`. A row that draws nothing gets one more, so as not to end with
        its last one."""
        end = int(self._followed.num_tokens[slot])
        self._table.histories[slot, start : end - 1] = self._followed.histories[slot, start + 1 : end]
        self._table.num_computed[slot], self._table.num_tokens[slot] = start, end - draws

    def _enter(self, freed: list[int], entering: list[NewSlot]) -> None:
        super()._enter(freed, entering)
        for new in entering:
            if self._table.is_taken[new.slot]:
                self._table.num_computed[new.slot] = new.num_computed

    def _own(self, new: NewSlot) -> NewSlot:
        own = super()._own(new)
        own.token_ids = own.token_ids[TOKEN_BYTES:] or own.token_ids
        own.num_prompt, own.num_computed = min(new.num_prompt, len(own.token_ids) // TOKEN_BYTES), 0
        return own
