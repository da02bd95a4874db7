"""What a step costs by its number of tokens, learned from the steps that ran.

A surprise at a number of tokens that is known well mostly says that the machine is busier, or that contexts got longer,
so it moves the whole curve; its shape follows slowly. A number that was never seen, or not for long, is taken to differ
from the table below as its neighbours do. There is a curve for each power of two of rows: sixteen tokens of one
sequence read one context, sixteen rows read sixteen.
"""

from bisect import bisect_right
from itertools import accumulate
from math import exp, log

import numpy

_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Before anything is known: what steps of a 0.6B model cost on a CPU (docs/benchmarks.md), and beyond it in proportion.
_COSTS = (1.0, 1.03, 1.1, 1.3, 1.7, 2.6, 5.0, 9.5, 18.5, 36.5)
# Rates of learning from a step that was quicker than thought, and from a slower one. Other work on the machine makes
# steps slower and never quicker, so the quick ones say what a step costs.
_CURVE_RATES = (0.2, 0.03)
_SHAPE_RATES = (0.05, 0.01)
_FIRST_RATES = (0.7, 0.35)
_KNOWN = 4.0  # steps after which a number of tokens is known
_MEMORY, _SHORT_MEMORY = 0.999, 0.998  # of a number's steps with each further step: of a known one, and of others
# In logarithms: a step that took ten times as long says little about its tokens. Were it believed, nothing of that
# length would be tried again.
_SURPRISE_AT_MOST = 1.2
_PROOF = 0.25  # a step that was so much quicker proves that its tokens cost less than was thought


class StepCosts:
    def __init__(self) -> None:
        self._curves: dict[int, _Curve] = {}

    def of(self, num_rows: int, most_drafts: int) -> list[float]:
        """Return what a step costs with no draft, with one, …, with so many; only their ratios mean anything."""
        return self._curve(num_rows).costs(num_rows, num_rows + most_drafts)

    def knows(self, num_rows: int) -> bool:
        """Whether steps without drafts were seen often and lately enough to compare others with them."""
        return self._curve(num_rows).knows(num_rows)

    def learn(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Take in how long a step of rows and their drafts took; steps with tokens of prompts are left out."""
        if seconds > 0:
            self._curve(num_rows).learn(num_tokens, seconds)

    def _curve(self, num_rows: int) -> "_Curve":
        size = num_rows.bit_length()
        if (curve := self._curves.get(size)) is None:
            curve = self._curves[size] = _Curve()
        return curve


class _Curve:
    def __init__(self) -> None:
        self._costs = list(_COSTS)
        self._factors = [0.0] * len(_COSTS)  # logarithms of what the table is multiplied with
        self._seen = [0.0] * len(_COSTS)

    def knows(self, num_tokens: int) -> bool:
        left, share = _between(num_tokens)
        return self._seen[left if share < 0.5 else left + 1] >= 1

    def costs(self, first: int, last: int) -> list[float]:
        """Return the costs of so many tokens, and of each number between."""
        found = []
        left, _ = _between(first)
        for num_tokens in range(first, last + 1):
            if num_tokens > _TOKENS[left + 1] and left + 2 < len(_TOKENS):
                left += 1
            share = (num_tokens - _TOKENS[left]) / (_TOKENS[left + 1] - _TOKENS[left])
            found.append(self._costs[left] + share * (self._costs[left + 1] - self._costs[left]))
        return found

    def learn(self, num_tokens: int, seconds: float) -> None:
        surprise = log(seconds / self.costs(num_tokens, num_tokens)[0])
        if any(self._seen):
            surprise = _within(_SURPRISE_AT_MOST, surprise)
        is_slow, is_proof = surprise > 0, surprise < -_PROOF
        self._seen = [seen * (_MEMORY if seen >= _KNOWN else _SHORT_MEMORY) for seen in self._seen]
        left, share = _between(num_tokens)
        for knot, part in ((left, 1 - share), (left + 1, share)):
            seen = self._seen[knot]
            is_known = seen >= _KNOWN and not is_proof
            rate = _SHAPE_RATES[is_slow] if is_known else max(_FIRST_RATES[is_slow], float(seen < 0.5))
            self._factors[knot] += part * rate * surprise
            self._seen[knot] += part
        if not is_proof and min(self._seen[left], self._seen[left + 1] if share else _KNOWN) >= _KNOWN:
            self._factors = [factor + _CURVE_RATES[is_slow] * surprise for factor in self._factors]
        self._fill_in()

    def _fill_in(self) -> None:
        """Let numbers of tokens that aren't known differ from the table as those between which they are."""
        known = [knot for knot, seen in enumerate(self._seen) if seen >= 0.5]
        if 0 < len(known) < len(self._factors):
            values = [self._factors[knot] for knot in known]
            self._factors = numpy.interp(range(len(self._factors)), known, values).tolist()
            self._extend(known[0], known[-1])
        # More tokens never cost less.
        self._costs = list(accumulate((cost * exp(f) for cost, f in zip(_COSTS, self._factors)), max))

    def _extend(self, first: int, last: int) -> None:
        """Let more tokens than any known number add to its cost what they add in the table: whatever else it has
        beyond the first one's, they don't pay again."""
        base = exp(self._factors[first])
        for knot in range(last + 1, len(_COSTS)):
            cost = _COSTS[last] * exp(self._factors[last]) + base * (_COSTS[knot] - _COSTS[last])
            self._factors[knot] = log(cost / _COSTS[knot])


_USUAL = _Curve()


def usual_costs(num_rows: int, most_drafts: int) -> list[float]:
    """What `StepCosts.of` returns before anything is learned."""
    return _USUAL.costs(num_rows, num_rows + most_drafts)


def _within(bound: float, surprise: float) -> float:
    return max(-bound, min(bound, surprise))


def _between(num_tokens: int) -> tuple[int, float]:
    """Return the knot at or before a number of tokens, and how far it is on the way to the next one."""
    left = min(bisect_right(_TOKENS, num_tokens), len(_TOKENS) - 1) - 1
    return left, (num_tokens - _TOKENS[left]) / (_TOKENS[left + 1] - _TOKENS[left])
