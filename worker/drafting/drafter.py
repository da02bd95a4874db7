"""The drafts of a step: asks the proposers about the sequences that may be drafted for, and takes what is worth it.

A sequence about which nobody has guessed right of late is looked at in every second, fourth, … step only, so a text
that can't be foreseen costs next to nothing, and in every step again once a guess was right.
"""

from collections.abc import Sequence

import numpy

from ...protocol.messages import NewSlot
from .proposer import Look, Proposer
from .worth import Plan, Worth

_SELDOM = 8  # steps between two looks at most
_PATIENCE = 4  # looks without a right guess before they get rare
_CONVINCING = 0.5  # a chance for all drafts that may be had, at which no further proposer is asked


class Drafter:
    def __init__(self, proposers: Sequence[Proposer], drafts_always: bool = False) -> None:
        """`proposers`: first those that know most. `drafts_always`: a named one, all of whose drafts are checked."""
        self.proposers = proposers
        self.drafts_always = drafts_always
        self.worth = Worth()
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

    def drafts(self, looks: list[Look], num_rows: int) -> list[list[int]]:
        """Return the drafts of each look, in a step of so many rows in all."""
        due = [place for place, look in enumerate(looks) if self._is_due(look)]
        plans = self._plans([looks[place] for place in due])
        chosen = [plan.tokens for plan in plans] if self.drafts_always else self.worth.cut(plans, num_rows)
        found: list[list[int]] = [[] for _ in looks]
        for place, drafts in zip(due, chosen):
            found[place] = drafts
        return found

    def _is_due(self, look: Look) -> bool:
        if self.drafts_always:
            return look.most > 0
        wait = self._waits.get(look.slot, 0)
        self._waits[look.slot] = max(0, wait - 1)
        return look.most > 0 and not wait

    def _plans(self, looks: list[Look]) -> list[Plan]:
        """Return the best plan for each look."""
        for look in looks:
            self._pace(look.slot, self.worth.settle(look))
        plans = [Plan([], [])] * len(looks)
        asked = list(range(len(looks)))
        for proposer in self.proposers:
            guesses = proposer.guess([looks[place] for place in asked])
            for place, guess in zip(asked, guesses):
                if guess.tokens:
                    plan = self.worth.plan(looks[place], proposer.name, guess)
                    plans[place] = max(plans[place], plan, key=_gain)
            asked = [place for place in asked if not _is_convincing(plans[place], looks[place])]
            if not asked:
                break
        return plans

    def _pace(self, slot: int, num_right: int) -> None:
        misses = self._misses[slot] = 0 if num_right else self._misses.get(slot, 0) + 1
        self._waits[slot] = min(_SELDOM, 1 << max(0, misses - _PATIENCE) // 2) - 1

    def _forget(self, slot: int) -> None:
        self.worth.forget(slot)
        self._misses.pop(slot, None)
        self._waits.pop(slot, None)


def _gain(plan: Plan) -> float:
    return sum(plan.chances)


def _is_convincing(plan: Plan, look: Look) -> bool:
    return len(plan.tokens) == look.most and plan.chances[-1] >= _CONVINCING
