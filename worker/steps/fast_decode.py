"""Decode steps in which every row samples one token and asks for nothing else, as a backend may compute them faster.

The tokens are those of `Runner`. A backend that has such a way gives it (`Backend.fast_decode`).
"""

from collections.abc import Callable
from typing import Protocol

from ...protocol.messages import StepPlan, StepResult


class FastDecode(Protocol):
    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """What waits for the step and says what it brought; None, and nothing is done, if it is not one of these."""
