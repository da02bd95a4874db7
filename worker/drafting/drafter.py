"""The drafts of a step: asks the proposers about the sequences that may be drafted for, and takes what is worth it.

Where looking takes more than a hundredth of a step, because the model is tiny or the rows are many, a sequence about
which nobody has guessed right of late is looked at in every second, fourth, … step only, and in every step again once a
guess was right.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy

from ...protocol.messages import NewSlot
from .proposer import Look, Proposer
from .worth import Plan, Worth

_PATIENCE = 4  # looks without a right guess before they may get rare
_DOUBLINGS = 4  # of the steps from one look to the next, at most
_SHARE = 0.01  # of a step's time, that looks may take
_RATE = 0.1  # at which the times of looks and steps are averaged
_CONVINCING = 0.5  # a chance for all drafts that may be had, at which no further proposer is asked


class Drafter:
    def __init__(
        self,
        proposers: Sequence[Proposer],
        drafts_always: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`proposers`: first those that know most. `drafts_always`: a named one, all of whose drafts are checked."""
        self.proposers = proposers
        self.drafts_always = drafts_always
        self.worth = Worth()
        self._clock = clock
        self._look_seconds = self._step_seconds = 0.0  # of one look, and of one step
        self._misses: dict[int, int] = {}  # by slot, looks since a guess was right
        self._waits: dict[int, int] = {}  # by slot, steps until the next look

    def enter(self, slot: int, new: NewSlot) -> None:
        self._forget(slot)
        for proposer in self.proposers:
            proposer.enter(slot, new)

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        self._forget(slot)
        for proposer in self.proposers:
            proposer.leave(slot, tokens)

    def learn(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Take in how long a step took that had no tokens of prompts; `num_tokens` counts rows and drafts."""
        self.worth.costs.learn(num_rows, num_tokens, seconds)
        self._step_seconds += _RATE * (seconds - self._step_seconds)

    def drafts(self, looks: list[Look], num_rows: int) -> list[list[int]]:
        """Return the drafts of each look, in a step of so many rows in all."""
        due = [place for place, look in enumerate(looks) if self._is_due(look)]
        found: list[list[int]] = [[] for _ in looks]
        if not due:
            return found
        began = self._clock()
        plans = self._plans([looks[place] for place in due], num_rows)
        chosen = [plan.tokens for plan in plans] if self.drafts_always else self.worth.cut(plans, num_rows)
        for place, drafts in zip(due, chosen):
            found[place] = drafts
        self._look_seconds += _RATE * ((self._clock() - began) / len(due) - self._look_seconds)
        return found

    def _is_due(self, look: Look) -> bool:
        if self.drafts_always:
            return look.most > 0
        wait = self._waits.get(look.slot, 0)
        self._waits[look.slot] = max(0, wait - 1)
        return look.most > 0 and not wait

    def _plans(self, looks: list[Look], num_rows: int) -> list[Plan]:
        """Return the best plan for each look."""
        # With all rows looked at in every so many steps, looks take their share.
        seldom = round(num_rows * self._look_seconds / (_SHARE * self._step_seconds)) if self._step_seconds else 1
        for look in looks:
            self._pace(look.slot, self.worth.settle(look), seldom)
        plans = [Plan([], [])] * len(looks)
        asked = list(range(len(looks)))
        for proposer in self.proposers:
            guesses = proposer.guess([looks[place] for place in asked])
            for place, guess in zip(asked, guesses):
                if guess.tokens:
                    plan = self.worth.plan(looks[place], proposer.name, guess)
                    plans[place] = plan if _gain(plan) >= _gain(plans[place]) else plans[place]
            asked = [place for place in asked if not _is_convincing(plans[place], looks[place])]
            if not asked:
                break
        return plans

    def _pace(self, slot: int, num_right: int, seldom: int) -> None:
        misses = self._misses[slot] = 0 if num_right else self._misses.get(slot, 0) + 1
        doublings = min(_DOUBLINGS, max(0, misses - _PATIENCE))
        self._waits[slot] = max(0, min(seldom, 1 << doublings) - 1)

    def _forget(self, slot: int) -> None:
        self.worth.forget(slot)
        self._misses.pop(slot, None)
        self._waits.pop(slot, None)


def _gain(plan: Plan) -> float:
    return sum(plan.chances)


def _is_convincing(plan: Plan, look: Look) -> bool:
    return len(plan.chances) == look.most and plan.chances[-1] >= _CONVINCING
