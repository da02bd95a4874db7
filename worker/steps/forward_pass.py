"""The interfaces by which a runner computes steps; each backend has classes that fit them."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from ...protocol.messages import StepPlan, StepResult


class ForwardPass(Protocol):
    """What computes a batch: a decoder, or a recorded or captured one."""

    def forward(self, batch: Any) -> Tensor:
        """The stream behind the last layer, of what the backend's `batch` made."""

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor: ...


class FastDecode(Protocol):
    """A fast path for decode steps in which each row only samples one token; the tokens are those of `Runner`."""

    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Launch the step and return what waits for its result; None, with nothing changed, if the plan is refused."""
