"""How much of the engine's loop grammars may take in a step, and which of them have to go elsewhere.

Processor time is counted, so that a machine with much else to do changes nothing. Knows nothing of grammars.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from .constraint import Constraint

Result = TypeVar("Result")

# What grammars take while the workers compute the next step holds nobody up: half of that time, and that at least.
_SHARE, _LEAST_SECONDS = 0.5, 0.008
# Beyond it only those go on that took little lately, and beyond so many times it none.
_CHEAP_SECONDS, _MOST = 0.0003, 4


class LoopBudget:
    def __init__(self) -> None:
        self._spent = 0.0
        self._share = _LEAST_SECONDS

    def begin_step(self, forward_time: float) -> None:
        """What is spent is counted anew; the next step takes about as long as the last."""
        self._spent = 0.0
        self._share = max(_LEAST_SECONDS, _SHARE * forward_time)

    def allows(self, constraint: Constraint) -> bool:
        if self._spent < self._share:
            return True
        return self._spent < _MOST * self._share and constraint.seconds < _CHEAP_SECONDS

    def timed(self, constraint: Constraint, work: Callable[..., Result], *arguments: object) -> Result:
        """Do something for a constraint, and remember how long it took."""
        start = time.thread_time()
        result = work(*arguments)
        seconds = time.thread_time() - start
        # A mask takes longer than the token before it, which must not hide that.
        constraint.seconds = max(seconds, constraint.seconds / 2)
        self._spent += seconds
        return result
