"""Fast path on a GPU for decode steps in which each row samples one token: the host sends counts and replays a graph.

A GPU computes such a step of a small model in less than half a millisecond, and the host must launch the next one in
that time. So these plans skip everything that only other rows need. Any other plan is refused before anything has
changed, and `Runner` computes it, with the same tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy
import torch

from ....protocol.messages import StepPlan, StepResult
from ....protocol.processes.faults import point
from ....protocol.processes.trace import Trace
from ....protocol.wire import column
from ...device import HostCopy
from ...kv.model_memory import ModelMemory
from ...ranks.parallel import Parallel
from ...sampler import Sampler, SamplingRows, sample_on_first
from ...steps.outcome import Outcome
from ...steps.slots import SlotTable
from ...steps.step_rows import StepRows
from .decoder import GraphedDecoder
from .device_batch import DeviceBatch, rotations_end

_ONE = column([1])


@dataclass
class GraphedFastDecode:
    graphed: GraphedDecoder
    sample: Sampler
    memory: ModelMemory
    table: SlotTable
    ranks: Parallel
    trace: Trace

    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Launch the step and return a function that waits for its result; None, changing nothing, if refused."""
        count = len(plan.slots) // len(_ONE)
        if not plan.has_rows_only or plan.num_tokens != _ONE * count or not self._are_plain(plan):
            return None
        with self.trace.span("launch", step=plan.step, rows=count, tokens=count):
            rows = self.table.apply(plan)
            return self._arriving(plan.step, rows, self._launched(rows))

    def _are_plain(self, plan: StepPlan) -> bool:
        """Whether each row has all but its newest token computed, and wants only the next one."""
        table, slots = self.table, numpy.frombuffer(plan.slots, numpy.int32)
        if not len(slots) or int(slots.min()) < 0 or int(slots.max()) >= len(table.is_taken):
            return False
        computed = table.num_computed[slots]
        are_newest = (computed + 1 == table.num_tokens[slots]) & (computed >= table.num_prompt[slots])
        if not (are_newest & table.is_taken[slots] & table.is_plain[slots]).all():
            return False
        end = self.graphed.captured_end(table)
        return not table.prompt_rotations or rotations_end(table, slots, computed + 1) <= end

    @torch.inference_mode()
    def _launched(self, rows: StepRows) -> HostCopy:
        logits = self.graphed.replayed(DeviceBatch(self.table, rows, self.memory))
        if point("worker.logits") == "nan":
            logits[0] = torch.nan
        table = self.table
        sampling = SamplingRows(table.parameters, rows.slots, rows.ends, table.num_prompt[rows.slots], table.histories)
        sampled = sample_on_first(self.ranks, sampling, partial(self.sample, logits, sampling, None))
        return table.device.host_copy(sampled.chosen)

    def _arriving(self, step: int, rows: StepRows, chosen: HostCopy) -> Callable[[], StepResult]:
        def result() -> StepResult:
            token_ids, faults = chosen().T
            if faults.any():
                return Outcome(rows, [(numpy.arange(len(rows)), chosen)]).result(step)
            return StepResult(step, _ONE * len(rows), token_ids.astype(numpy.int32).tobytes(), 0.0)

        return result
