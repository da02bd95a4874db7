"""Drafts from heads that read the model's hidden states: its own for further tokens (MTP), or EAGLE-3's.

A head reads the hidden states of the model's last step, so it computes each step's tokens when the next one is
launched, before those states are written over. At position t it reads the hidden state there and token t + 1: its
history is the sequence's without the first token. That computation gives the first draft; for each further one it
reads its own output, and what it then keeps of these positions is replaced once the model has computed them.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import numpy

from ....kernels.arrays import Array
from ....protocol.messages import NewSlot, StepPlan, StepResult
from ....protocol.wire import TOKEN_BYTES, values
from ...steps.drafts import StepDrafts
from ...steps.step_rows import Ints
from ...steps.step_rows import column as read_column
from ..proposer import Look
from .draft_model import DraftModel, Following

_RATE = 0.05  # at which a sequence's accepted drafts are averaged
_COMMON_RATE = 0.01  # likewise those of all sequences
_TIME_RATE = 0.1  # likewise times
_SELDOM = 64  # new sequences of which one is followed while they don't pay


class ComputeHead(Protocol):
    def __call__(self, plan: StepPlan, hidden: Array, *, reads_model: bool) -> tuple[StepResult, Array]:
        """Compute a step from hidden states, [T, hidden], which are the model's or the head's own. Returns the result
        and the head's output, likewise."""


class WorthFollowing:
    """Which sequences heads follow: those whose drafts save more time than the heads take.

    Heads compute each token of a sequence that they follow, whether its drafts are checked or not, and can't catch up
    on what they passed over. So a sequence that doesn't pay is given up for good. While sequences don't pay on
    average, only a few new ones are followed, to find out when they do.
    """

    def __init__(self) -> None:
        self._accepted: dict[int, float] = {}  # by slot, the heads' accepted drafts per step
        self._common = 1.0  # likewise of all sequences
        self._step_seconds = self._own_seconds = 0.0  # per row: of a step, and of the heads; 0: not known
        self._num_passed = 0  # new sequences while they don't pay

    def enter(self, slot: int) -> bool:
        """Take in a new sequence; returns whether it is followed."""
        self._accepted.pop(slot, None)
        first = self._common
        if not self._pays(first):
            self._num_passed += 1
            if self._num_passed % _SELDOM:
                return False
            first = 1.0
        self._accepted[slot] = first
        return True

    def count(self, slot: int, num_accepted: int) -> bool:
        """Take in how many of the heads' drafts a step accepted; returns whether the sequence is still followed."""
        before = self._accepted.get(slot, self._common)
        accepted = self._accepted[slot] = before + _RATE * (num_accepted - before)
        self._common += _COMMON_RATE * (num_accepted - self._common)
        return self._pays(accepted)

    def learn_step(self, num_rows: int, seconds: float) -> None:
        self._step_seconds = _learned(self._step_seconds, seconds / num_rows)

    def learn_own(self, num_rows: int, seconds: float) -> None:
        """Take in how long the heads computed a step's rows, each with its newest token and accepted drafts."""
        self._own_seconds = _learned(self._own_seconds, seconds / num_rows)

    def _pays(self, accepted: float) -> bool:
        # An accepted draft saves one row's share of a step.
        return not self._step_seconds or accepted * self._step_seconds >= self._own_seconds


def _learned(before: float, seconds: float) -> float:
    return before + _TIME_RATE * (seconds - before) if before else seconds


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
        # Where no number of drafts is given. The drafts of the last step, and whose the heads were asked for.
        self._worth_following = WorthFollowing() if self._most is None else None
        self._checked: StepDrafts | None = None
        self._asked: set[int] = set()

    def follow(self, plan: StepPlan) -> None:
        rooms = read_column(plan.rooms) if plan.rooms else numpy.zeros(0, numpy.int64)
        drafting = {slot for slot, room in zip(values(plan.slots), rooms.tolist()) if room}
        if self._rows is not None and self._worth_following is not None:
            self._give_up(self._worth_following, *self._rows)
        self._first.clear()
        self._outputs.clear()
        self._asked.clear()
        if self._rows is not None:
            self._compute_rows(*self._rows, drafting)
        self._rows = self._checked = None
        self._take_in(plan)

    def learn(self, seconds: float) -> None:
        if self._worth_following is not None and self._rows is not None:
            self._worth_following.learn_step(len(self._rows[0]), seconds)

    def launch(self, plan: StepPlan, drafts: StepDrafts | None) -> None:
        """Note the rows of a step that is launched now; its table is still that before it."""
        slots, counts = read_column(plan.slots), read_column(plan.num_tokens)
        if drafts is not None:
            counts += drafts.num_drafted(len(slots))
        entering = {new.slot: new.num_computed for new in plan.new}
        computed = self._followed.num_computed
        starts = [entering.get(slot, int(computed[slot])) for slot in slots.tolist()]
        self._rows = (slots, numpy.array(starts, numpy.int64), counts) if len(slots) else None
        self._checked = drafts

    def _worth(self) -> int:
        return 1

    def _room(self, look: Look, most: int) -> int:
        return super()._room(look, most) if look.slot in self._first else 0

    def _begun(self, slots: list[int]) -> dict[int, list[int]]:
        self._asked.update(slots)
        return {slot: [self._first[slot]] for slot in slots}

    def _drawn(self, slots: list[int]) -> list[tuple[int, int]]:
        hidden = numpy.stack([self._outputs[slot] for slot in slots])
        return self._drawn_from(self._plan(slots, [1] * len(slots)), slots, hidden, reads_model=False)

    def _compute_rows(self, slots: Ints, starts: Ints, counts: Ints, drafting: set[int]) -> None:
        """Compute what counts of the last step's rows; those that may draft draw their first draft."""
        firsts = numpy.cumsum(counts) - counts
        rows = [row for row, slot in enumerate(slots.tolist()) if self._table.is_taken[slot]]
        ends = numpy.minimum(starts + counts, self._followed.num_computed[slots])
        rows = [row for row in rows if ends[row] > starts[row]]
        if not rows:
            return
        began = perf_counter()
        for row in rows:
            self._read_from(int(slots[row]), int(starts[row]), draws=slots[row] in drafting)
        lengths = ends[rows] - starts[rows]
        tokens = numpy.concatenate([firsts[row] + numpy.arange(ends[row] - starts[row]) for row in rows])
        own = slots[rows].tolist()
        hidden = self._hidden(int(counts.sum()))[tokens]
        self._first.update(self._drawn_from(self._plan(own, lengths), own, hidden, reads_model=True))
        if self._worth_following is not None and self._is_plain(counts).all():
            self._worth_following.learn_own(len(rows), perf_counter() - began)

    def _give_up(self, worth: WorthFollowing, slots: Ints, starts: Ints, counts: Ints) -> None:
        """Follow those of the last step's sequences no more that don't pay."""
        accepted: dict[int, int] = {}
        others: set[int] = set()  # with drafts of another proposer
        if self._checked is not None:
            for row, tokens, right in zip(self._checked.rows, self._checked.tokens, self._checked.num_accepted):
                slot = int(slots[row])
                is_own = slot in self._asked and tokens[0] == self._first[slot]
                accepted[slot] = min(right, 1) if is_own else 0
                if not is_own:
                    others.add(slot)
        judged = [slot for slot in slots[self._is_plain(counts)].tolist() if self._table.is_taken[slot]]
        unpaid = [slot for slot in judged if slot not in others and not worth.count(slot, accepted.get(slot, 0))]
        if unpaid:
            super()._enter(unpaid, [])

    def _is_plain(self, counts: Ints) -> numpy.ndarray:
        """Which rows of the last step computed their newest token and drafts, and nothing of a prompt."""
        own = counts.copy()
        if self._checked is not None:
            own -= self._checked.num_drafted(len(counts))
        return own == 1

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
        if (worth := self._worth_following) is not None:
            entering = [new for new in entering if worth.enter(new.slot)]
        super()._enter(freed, entering)
        for new in entering:
            if self._table.is_taken[new.slot]:
                self._table.num_computed[new.slot] = new.num_computed

    def _own(self, new: NewSlot) -> NewSlot:
        own = super()._own(new)
        own.token_ids = own.token_ids[TOKEN_BYTES:] or own.token_ids
        own.num_prompt, own.num_computed = min(new.num_prompt, len(own.token_ids) // TOKEN_BYTES), 0
        return own
