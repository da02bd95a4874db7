"""How much of the engine's loop grammars may take in a step, and which of them have to move to the follower's process.

It counts processor time rather than time on the clock, so that other load on the machine makes no difference.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from .constraint import Constraint

Result = TypeVar("Result")

# Grammars may take half the time in which the workers compute the next step, which delays nobody; at least this much.
_SHARE, _LEAST_SECONDS = 0.5, 0.008
# Beyond that only constraints that were cheap recently may continue, and beyond this multiple of it none.
_CHEAP_SECONDS, _MOST = 0.0003, 4


class LoopBudget:
    def __init__(self) -> None:
        self._spent = 0.0
        self._share = _LEAST_SECONDS

    def begin_step(self, forward_time: float) -> None:
        """Reset what is spent; the next step is assumed to take about as long as the last."""
        self._spent = 0.0
        self._share = max(_LEAST_SECONDS, _SHARE * forward_time)

    def allows(self, constraint: Constraint) -> bool:
        if self._spent < self._share:
            return True
        return self._spent < _MOST * self._share and constraint.seconds < _CHEAP_SECONDS

    def timed(self, constraint: Constraint, work: Callable[..., Result], *arguments: object) -> Result:
        """Run `work` for a constraint and note how long it took."""
        start = time.thread_time()
        result = work(*arguments)
        seconds = time.thread_time() - start
        # Masks take longer than tokens, and come alternately: a cheap token must not hide an expensive mask.
        constraint.seconds = max(seconds, constraint.seconds / 2)
        self._spent += seconds
        return result
