"""The interface of a backend's fast path for decode steps in which each row only samples one token.

The tokens are those of `Runner`. A backend that has a fast path returns it from `Backend.fast_decode`.
"""

from collections.abc import Callable
from typing import Protocol

from ...protocol.messages import StepPlan, StepResult


class FastDecode(Protocol):
    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Launch the step and return what waits for its result; None, with nothing changed, if the plan is refused."""
