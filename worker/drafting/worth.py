"""How many drafts of which proposer a step should check: as many as give the most tokens for its cost.

A proposer says how likely its drafts are. What that is worth is learned by comparing every guess with the tokens that
came, whether it was checked or not (`Calibration`), and what a step costs from the steps that ran (`StepCosts`). All of
this only decides about speed.
"""

from collections import Counter
from typing import NamedTuple

import numpy

from .proposer import NOTHING, Guess, Look
from .step_costs import StepCosts, usual_costs

_BINS = 32
_DECAY = 0.998  # of what a bin has counted, with each count
_PRIOR = 6.0  # counts that a proposer's own word is worth
# Of what it says, how much is believed at first. Those guesses are checked that seem best, so each mistake in their
# favour costs something, and one against them little.
_BELIEF = 0.8
_OWN_PRIOR = 10.0  # counts that the word of all sequences about one of them is worth
_OWN_DECAY = 0.95
# How likely a token is whose latest drafts were wrong, for each of them, as a share of what it would be. A copy leaves
# what it copies at the same few tokens again and again: an end of a line, say, where the answer has a quotation mark.
_IN_VAIN = 0.6
_LIKELIEST = 0.995
_GAIN_AT_LEAST = 1.02  # times the tokens per cost without drafts; less isn't worth the risk
_TRIES = 8
_TRY_AGAIN = 64  # steps given up, of which one is tried
_HOPELESS = 0.03  # a draft that is less likely isn't worth checking in any step


class Calibration:
    """How often a proposer's guesses are right, by what it says of them.

    `right` and `seen` count, in each of `_BINS` bins of likelihood, the guesses whose turn came: those before them
    were right.
    """

    def __init__(self) -> None:
        self._right = [0.0] * (_BINS + 1)
        self._seen = [0.0] * (_BINS + 1)
        self.found = [_BELIEF * index / _BINS for index in range(_BINS + 1)]
        self._said = [_PRIOR * found for found in self.found]

    def count(self, index: int, num_right: int, num_seen: int) -> None:
        """Take in guesses of one bin."""
        decay = _DECAY**num_seen
        self._right[index] = right = self._right[index] * decay + num_right
        self._seen[index] = seen = self._seen[index] * decay + num_seen
        self.found[index] = (right + self._said[index]) / (seen + _PRIOR)


class Record:
    """One sequence's own experience with a proposer: how many of its guesses were right, and how many should have."""

    def __init__(self) -> None:
        self.right = self.hoped = 0.0
        self.length = 0  # of the history when the latest guess was made
        self.guess = NOTHING
        self.in_vain: dict[int, float] = {}  # by token whose latest draft was wrong, a factor of its likelihood

    def factor(self) -> float:
        return (self.right + _OWN_PRIOR) / (self.hoped + _OWN_PRIOR)

    def settle(self, tokens: numpy.ndarray, calibration: Calibration) -> int:
        """Compare the latest guess with the tokens that came since; return how many of it were right."""
        came = tokens[self.length :].tolist()
        drafts, likelihoods = self.guess
        self.guess = NOTHING
        num_seen = min(len(came), len(drafts))
        num_right = next((index for index in range(num_seen) if came[index] != drafts[index]), num_seen)
        bins = [int(likelihood * _BINS) for likelihood in likelihoods[: num_right + 1][:num_seen]]
        self._note_in_vain(drafts, num_right, num_seen)
        decay = _OWN_DECAY ** len(bins)
        self.right = self.right * decay + num_right
        self.hoped = self.hoped * decay + sum(calibration.found[index] for index in bins)
        counts = Counter(bins)
        if num_right < num_seen:
            calibration.count(bins[-1], counts[bins[-1]] - 1, counts.pop(bins[-1]))
        for index, count in counts.items():
            calibration.count(index, count, count)
        return num_right

    def _note_in_vain(self, drafts: list[int], num_right: int, num_seen: int) -> None:
        if self.in_vain:
            for token in drafts[:num_right]:
                self.in_vain.pop(token, None)
        if num_right < num_seen:
            wrong = drafts[num_right]
            self.in_vain[wrong] = _IN_VAIN * self.in_vain.get(wrong, 1.0)


class Candidate(NamedTuple):
    """Drafts that a sequence could have, and how likely each is to be accepted along with those before it.

    There may be fewer chances than drafts: those beyond have none to speak of.
    """

    tokens: list[int]
    chances: list[float]
    proposer: str = ""


NONE = Candidate([], [])


class Worth:
    def __init__(self) -> None:
        self.costs = StepCosts()
        self._calibrations: dict[str, Calibration] = {}
        self._records: dict[int, dict[str, Record]] = {}
        self._num_tries = 0
        self._num_given_up = 0  # steps without drafts that the table finds worth checking

    def forget(self, slot: int) -> None:
        self._records.pop(slot, None)

    def settle(self, look: Look) -> int:
        """Learn from the tokens that came since the latest guesses about a sequence; return how many were foreseen."""
        records = self._records.setdefault(look.slot, {})
        return max((r.settle(look.tokens, self._calibrations[name]) for name, r in records.items()), default=0)

    def weigh(self, look: Look, name: str, guess: Guess) -> Candidate:
        """Note a proposer's guess, and turn what it says of its drafts into chances."""
        calibration = self._calibrations.setdefault(name, Calibration())
        record = self._records.setdefault(look.slot, {}).setdefault(name, Record())
        record.length, record.guess = len(look.tokens), guess
        found, in_vain, factor, chance, chances = calibration.found, record.in_vain, record.factor(), 1.0, []
        for token, likelihood in zip(guess.tokens, guess.likelihoods):
            own = found[int(likelihood * _BINS)] * factor
            if token in in_vain:
                own *= in_vain[token]
            chance *= own if own < _LIKELIEST else _LIKELIEST
            if chance < _HOPELESS:
                break
            chances.append(chance)
        return Candidate(guess.tokens, chances, name)

    def cut(self, candidates: list[Candidate], num_rows: int) -> list[list[int]]:
        """Return the drafts that a step should check, of all sequences together."""
        ranked = sorted((-chance, number) for number, each in enumerate(candidates) for chance in each.chances)
        if not ranked or self._lacks_comparison(num_rows):
            return [[] for _ in candidates]
        chances = [-chance for chance, _ in ranked]
        num_best = _best(chances, num_rows, self.costs.of(num_rows, len(ranked)))
        if not num_best:
            num_best = self._tried_again(chances, num_rows)
        counts = [0] * len(candidates)
        for _, number in ranked[:num_best]:
            counts[number] += 1
        return [each.tokens[:count] for each, count in zip(candidates, counts)]

    def _tried_again(self, chances: list[float], num_rows: int) -> int:
        """How many drafts to check although steps with as many were found too slow: now and then as many as would pay
        if nothing had been learned. Other work on the machine may have made those steps slow, and be gone."""
        if not (num_best := _best(chances, num_rows, usual_costs(num_rows, len(chances)))):
            return 0
        self._num_given_up = (self._num_given_up + 1) % _TRY_AGAIN
        return 0 if self._num_given_up else num_best

    def _lacks_comparison(self, num_rows: int) -> bool:
        """Whether a step should go without drafts to learn what that costs; after a few it is left at that."""
        self._num_tries = 0 if self.costs.knows(num_rows) else self._num_tries + 1
        return 0 < self._num_tries <= _TRIES


def _best(chances: list[float], num_rows: int, costs: list[float]) -> int:
    """How many of the drafts, the likeliest first, give the most tokens for a step's cost."""
    expected, best, num_best = float(num_rows), _GAIN_AT_LEAST * num_rows / costs[0], 0
    for num_drafts, chance in enumerate(chances, start=1):
        expected += chance
        if (rate := expected / costs[num_drafts]) > best:
            best, num_best = rate, num_drafts
    return num_best
