"""The interfaces through which a runner computes steps; each backend implements them."""

from collections.abc import Callable
from typing import Any, Protocol

from ...kernels.arrays import DeviceArray
from ...protocol.messages import StepPlan, StepResult


class ForwardPass(Protocol):
    """Computes a batch: a decoder, or a recorded or captured one."""

    def forward(self, batch: Any) -> DeviceArray:
        """Return the stream after the last layer, for a batch made by the backend's `batch`."""

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray: ...


class FastDecode(Protocol):
    """A fast path for decode steps in which each row only samples one token; the tokens are those of `Runner`."""

    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Launch the step and return a function that waits for its result; None, changing nothing, if refused."""
