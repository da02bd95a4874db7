"""The steps that most are: every row computes its newest token and asks for the next one, and for nothing else.

What computes a model may have a shorter way for them, to the same tokens: native kernels play a record
(`recorded_steps.py`), a GPU replays graphs (`graphed_steps.py`). Knows nothing of how.
"""

from collections.abc import Callable
from typing import Protocol

from ..protocol.messages import StepPlan, StepResult
from ..protocol.trace import Trace
from .graphed_steps import GraphedSteps
from .kv_cache import AnyKVCache
from .models.graphed import GraphedDecoder
from .models.load import Model
from .models.recorded import RecordedDecoder
from .parallel import Parallel
from .recorded_steps import RecordedSteps
from .slots import SlotTable


class PlainSteps(Protocol):
    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """What waits for the step and says what it brought; None, and nothing is done, if it is not one of these."""


def plain_steps(model: Model, kv: AnyKVCache, table: SlotTable, ranks: Parallel, trace: Trace) -> PlainSteps | None:
    """None where there is no shorter way."""
    if isinstance(model.runs, RecordedDecoder):
        return RecordedSteps(model.runs, kv, table, ranks, trace)
    if isinstance(model.runs, GraphedDecoder) and model.runs.options.is_on and ranks.size == 1:
        return GraphedSteps(model, kv, table, trace)
    return None
