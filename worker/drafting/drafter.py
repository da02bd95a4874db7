"""The drafts of a step: asks the proposers about the sequences that may be drafted for, and takes what is worth it.

A look takes time as well, which matters if the model is tiny or the rows are many. While the drafts of a sequence
that were right of late saved less time than its looks take, it is looked at so seldom that all looks take a hundredth
of the time.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy

from ...protocol.messages import NewSlot
from .proposer import Look, Proposer
from .worth import NONE, Candidate, Worth

_SHARE = 0.01  # of the time, that looks may take which don't pay
_SELDOM = 64  # steps from one look to the next at most
_SAVED_RATE = 0.2  # at which the drafts of a look that were right are averaged; of a new sequence one is hoped for
_TIME_RATE = 0.1  # likewise the times of looks and of steps
_LEARN_EVERY = 8  # steps without drafts, once it is known how long they take: there are many
_LOOK_SECONDS = 5e-5  # what a look took where it was measured
_SURPRISE_AT_MOST = 4.0  # times as long as the looks before
_CONVINCING = 0.5  # a chance for all drafts that may be had, at which no further proposer is asked


class Drafter:
    def __init__(
        self,
        proposers: Sequence[Proposer],
        always: str | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Ask these proposers, in order. `always`: the name of one whose drafts are checked, whether it pays or not."""
        self.proposers = proposers
        self.always = always
        self.worth = Worth()
        self._clock = clock
        self._look_seconds, self._step_seconds = _LOOK_SECONDS, 0.0  # of a look, and of a plain step; 0: not known
        self._num_plain = 0  # steps without drafts
        # By slot, how many drafts the latest look gave, and what checking them costs in tokens of a plain step.
        self._drafted: dict[int, tuple[int, float]] = {}
        self._saved: dict[int, float] = {}  # by slot, drafts of a look that were right, less what checking cost
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
        if num_tokens == num_rows:
            self._num_plain += 1
            if self._num_plain % _LEARN_EVERY and self.worth.costs.knows(num_rows):
                return
        self.worth.costs.learn(num_rows, num_tokens, seconds)
        costs = self.worth.costs.of(num_rows, num_tokens - num_rows)
        plain_seconds = seconds * costs[0] / costs[-1]
        before = self._step_seconds or plain_seconds
        self._step_seconds = before + _TIME_RATE * (plain_seconds - before)

    def take_turn(self, slot: int) -> bool:
        """Count a step in which a sequence may have drafts; returns whether it is looked at in it."""
        if not (wait := self._waits.get(slot, 0)):
            return True
        self._waits[slot] = wait - 1
        return False

    def drafts(self, looks: list[Look], num_rows: int) -> list[list[int]]:
        """Return the drafts of each look, in a step of so many rows in all."""
        began = self._clock()
        found = self._chosen(self._candidates(looks, num_rows), num_rows)
        cost = self._cost_of_draft(sum(map(len, found)), num_rows)
        self._drafted.update((look.slot, (len(drafts), len(drafts) * cost)) for look, drafts in zip(looks, found))
        # A look that reads a whole prompt says nothing about the next ones.
        took = min((self._clock() - began) / len(looks), _SURPRISE_AT_MOST * self._look_seconds)
        self._look_seconds += _TIME_RATE * (took - self._look_seconds)
        return found

    def _candidates(self, looks: list[Look], num_rows: int) -> list[Candidate]:
        """Return the best proposer's drafts for each look."""
        for look in looks:
            self._pace(look.slot, self.worth.settle(look), num_rows)
        best = [NONE] * len(looks)
        open_looks = list(range(len(looks)))
        for proposer in self.proposers:
            guesses = proposer.guess([looks[index] for index in open_looks])
            for index, guess in zip(open_looks, guesses):
                if guess.tokens:
                    found = self.worth.weigh(looks[index], proposer.name, guess)
                    best[index] = found if _gain(found) >= _gain(best[index]) else best[index]
            open_looks = [index for index in open_looks if not _is_convincing(best[index], looks[index])]
            if not open_looks:
                break
        return best

    def _chosen(self, candidates: list[Candidate], num_rows: int) -> list[list[int]]:
        """Return the drafts of each candidate that are checked."""
        is_weighed = [self.always is None or each.proposer != self.always for each in candidates]
        weighed = [each if weighs else NONE for each, weighs in zip(candidates, is_weighed)]
        cut = self.worth.cut(weighed, num_rows)
        return [drafts if weighs else each.tokens for each, drafts, weighs in zip(candidates, cut, is_weighed)]

    def _cost_of_draft(self, num_drafts: int, num_rows: int) -> float:
        """What checking each of a step's drafts costs, in tokens of a step without drafts."""
        if not num_drafts:
            return 0.0
        costs = self.worth.costs.of(num_rows, num_drafts)
        return num_rows * (costs[-1] / costs[0] - 1) / num_drafts

    def _pace(self, slot: int, num_right: int, num_rows: int) -> None:
        """Decide when to look at a sequence next, given how many tokens of the guess before came."""
        if self.always is not None:
            return
        before = self._saved.get(slot, 1.0)
        num_drafts, cost = self._drafted.get(slot, (0, 0.0))
        saved = self._saved[slot] = before + _SAVED_RATE * (min(num_right, num_drafts) - cost - before)
        step_seconds, look_seconds = self._step_seconds, num_rows * self._look_seconds
        pays = not step_seconds or saved * step_seconds >= look_seconds
        wait = 0 if pays else min(_SELDOM, look_seconds / (_SHARE * step_seconds))
        self._waits[slot] = max(0, round(wait) - 1)

    def _forget(self, slot: int) -> None:
        self.worth.forget(slot)
        for of_slot in (self._drafted, self._saved, self._waits):
            of_slot.pop(slot, None)


def _gain(candidate: Candidate) -> float:
    return sum(candidate.chances)


def _is_convincing(candidate: Candidate, look: Look) -> bool:
    return len(candidate.chances) == look.most and candidate.chances[-1] >= _CONVINCING
