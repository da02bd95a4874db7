"""What a step costs by its number of tokens, learned from the steps that ran.

Costs are relative: a step in which each row computes one token costs about 1. How fast the machine is at the moment
(`_pace`, in seconds) is learned quickly, so that a busy machine or a longer context doesn't look like the price of
drafts; the shape of the curve is learned slowly, and what isn't seen for long drifts back to where it began. It is kept
for each power of two of rows apart: sixteen tokens of one sequence read one context, sixteen rows read sixteen.
"""

from bisect import bisect_right
from itertools import accumulate
from math import exp, log

_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Before anything is known: what steps of a 0.6B model cost on a CPU (docs/benchmarks.md), and beyond it in proportion.
_COSTS = (1.0, 1.03, 1.1, 1.3, 1.7, 2.6, 5.0, 9.5, 18.5, 36.5)
_PACE_RATE = 0.2
_SHAPE_RATE_AT_LEAST = 0.02  # at first it is one over the steps seen, and a few for the beginning
_BEGINNING = 4.0
_DRIFT = 0.0005  # a few thousand steps
_SURPRISE_AT_MOST = 0.4  # in logarithms: a step that took ten times as long says little about its tokens


class StepCosts:
    def __init__(self) -> None:
        self._curves: dict[int, _Curve] = {}

    def of(self, num_rows: int, num_tokens: int) -> float:
        """Return the cost of a step of so many tokens, in the unit of steps with as many rows."""
        return self._curve(num_rows).cost(num_tokens)

    def learn(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Take in how long a step of rows and their drafts took; steps with tokens of prompts are left out."""
        self._curve(num_rows).learn(num_tokens, seconds)

    def _curve(self, num_rows: int) -> "_Curve":
        size = num_rows.bit_length()
        if (curve := self._curves.get(size)) is None:
            curve = self._curves[size] = _Curve()
        return curve


class _Curve:
    def __init__(self) -> None:
        self._beginning = [log(cost) for cost in _COSTS]
        self._logs = list(self._beginning)
        self._costs = list(_COSTS)
        self._counts = [_BEGINNING] * len(_COSTS)
        self._pace: float | None = None  # the logarithm of the seconds that a cost of 1 takes

    def cost(self, num_tokens: int) -> float:
        left, share = _between(num_tokens)
        return self._costs[left] + share * (self._costs[left + 1] - self._costs[left])

    def learn(self, num_tokens: int, seconds: float) -> None:
        if seconds <= 0:
            return
        found = log(seconds) - log(self.cost(num_tokens))
        if self._pace is None:
            self._pace = found
        surprise = max(-_SURPRISE_AT_MOST, min(_SURPRISE_AT_MOST, found - self._pace))
        self._pace += _PACE_RATE * surprise
        left, share = _between(num_tokens)
        for knot, part in ((left, 1 - share), (left + 1, share)):
            self._counts[knot] += part
            self._logs[knot] += max(_SHAPE_RATE_AT_LEAST, 1 / self._counts[knot]) * part * surprise
        for knot, beginning in enumerate(self._beginning):
            self._logs[knot] += _DRIFT * (beginning - self._logs[knot])
        # More tokens never cost less.
        self._costs = list(accumulate(map(exp, self._logs), max))


def _between(num_tokens: int) -> tuple[int, float]:
    """Return the knot at or before a number of tokens, and how far it is on the way to the next one."""
    left = min(bisect_right(_TOKENS, num_tokens), len(_TOKENS) - 1) - 1
    return left, (num_tokens - _TOKENS[left]) / (_TOKENS[left + 1] - _TOKENS[left])
