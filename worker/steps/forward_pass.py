"""The interfaces through which a runner computes steps; each backend implements them."""

from collections.abc import Callable
from typing import Any, Protocol

from ...kernels.arrays import DeviceArray
from ...protocol.messages import StepPlan, StepResult


class ForwardPass(Protocol):
    """Computes a batch: a decoder, or a recorded or captured one."""

    def forward(self, batch: Any) -> DeviceArray:
        """Return the stream after the last layer, for a batch made by the backend's `batch`."""

    def compute_layers(self, batch: Any, first: int, end: int) -> None:
        """Compute these layers for a batch alone, from 0 on in one or several calls, between which others may be
        made. Only its keys, values and states are wanted."""

    @property
    def num_layers(self) -> int: ...

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray: ...


class FastDecode(Protocol):
    """A fast path for decode steps in which each row only samples one token; the tokens are those of `Runner`."""

    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Launch the step and return a function that waits for its result; None, changing nothing, if refused."""
