"""One step after another: plan → batch → forward → sample → result.

A pure function of the message stream: the same plans and masks give the same results. It never drops a request; a
row that went wrong is marked in the result and goes on with a harmless token until the engine ends it.
Knows nothing of sockets, and of where plans come from.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy
import torch
from torch import Tensor

from ..protocol.faults import point
from ..protocol.messages import FailedRow, Logprobs, MaskFrame, StepPlan, StepResult, column, values
from ..protocol.trace import Trace
from .batch import Batch
from .device import on_device
from .kv_cache import KVCache
from .logprobs import TokenLogprobs, joined, piece_length, token_logprobs
from .parallel import Parallel
from .sampler import FAULTS, Mask, Sampled, SamplingRows, sample
from .sampler.parameters import NO_LOGPROBS
from .slots import PlanError, SlotTable, StepRows
from .step_batch import step_batch

AwaitMask = Callable[[int], MaskFrame]


class Model(Protocol):
    """What the runner asks of a model."""

    vocab_size: int

    def forward(self, batch: Batch) -> Tensor: ...

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor: ...


class Outcome(NamedTuple):
    """What a step brought, on the host."""

    token_ids: numpy.ndarray  # one for each row that sampled
    faults: numpy.ndarray
    logprobs: list[Logprobs]


class Runner:
    def __init__(self, model: Model, kv: KVCache, table: SlotTable, ranks: Parallel, *, trace: Trace) -> None:
        self.model = model
        self.kv = kv
        self.table = table
        self.ranks = ranks
        self.trace = trace

    @torch.inference_mode()
    def step(self, plan: StepPlan, await_mask: AwaitMask) -> StepResult:
        point("worker.step")
        start = time.perf_counter()
        rows = self.table.apply(plan)
        _check_masked(plan, rows)
        self._copy_blocks(plan)
        if len(rows):
            outcome = self._compute(plan, rows, await_mask)
        else:
            outcome = Outcome(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.int64), [])
        return _result(plan.step, rows, outcome, time.perf_counter() - start)

    def _compute(self, plan: StepPlan, rows: StepRows, await_mask: AwaitMask) -> Outcome:
        batch = step_batch(self.table, rows, self.kv)
        with self.trace.span("forward", step=plan.step, rows=len(rows), tokens=len(batch.positions)):
            hidden = self.model.forward(batch)
        logprobs = self._prompt_logprobs(rows, batch, hidden)
        if not rows.is_sampling.any():
            return Outcome(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.int64), logprobs)
        with self.trace.span("sample", step=plan.step):
            logits = self.model.logits(hidden, batch.logit_rows)
            mask = self._mask(plan, rows, await_mask) if plan.masked and self.ranks.rank == 0 else None
            return self._sample(rows, logits, mask, logprobs)

    def _sample(self, rows: StepRows, logits: Tensor, mask: Mask | None, logprobs: list[Logprobs]) -> Outcome:
        sampling = numpy.flatnonzero(rows.is_sampling)
        slots, positions = rows.slots[sampling], rows.ends[sampling]
        if self.ranks.rank == 0:
            sampled, own_logprobs = self._sampled(sampling, slots, positions, logits, mask)
        else:
            sampled = Sampled(*torch.zeros(2, len(slots), dtype=torch.int64, device=self.table.device))
            own_logprobs = []
        # All histories agree because all have rank 0's tokens.
        token_ids = self.ranks.broadcast(sampled.token_ids)
        where = (on_device(slots, self.table.device), on_device(positions, self.table.device))
        self.table.histories[where] = token_ids.to(torch.int32)
        on_host = torch.stack((token_ids, sampled.faults)).cpu().numpy()
        return Outcome(on_host[0], on_host[1], logprobs + own_logprobs)

    def _sampled(
        self, sampling: numpy.ndarray, slots: numpy.ndarray, positions: numpy.ndarray, logits: Tensor, mask: Mask | None
    ) -> tuple[Sampled, list[Logprobs]]:
        parameters = self.table.parameters
        if point("worker.logits") == "nan":
            logits[0] = torch.nan
        asking = numpy.flatnonzero(parameters.logprobs[slots] != NO_LOGPROBS)
        index = on_device(asking, logits.device)
        raw = logits[index] if len(asking) else None  # the sampler overwrites them
        histories, num_prompt = self.table.histories, self.table.num_prompt[slots]
        sampled = sample(logits, SamplingRows(parameters, slots, positions, num_prompt, histories), mask)
        if raw is None:
            return sampled, []
        num_top = parameters.logprobs[slots[asking]]
        found = token_logprobs(raw, sampled.token_ids[index], int(num_top.max()))
        owners = enumerate(zip(sampling[asking].tolist(), num_top.tolist(), strict=True))
        return sampled, [found.part(row, False, slice(place, place + 1), top) for place, (row, top) in owners]

    def _prompt_logprobs(self, rows: StepRows, batch: Batch, hidden: Tensor) -> list[Logprobs]:
        """Of the prompt tokens that this step's hidden states speak of: each position's says the next token."""
        slots = rows.slots
        wanted = self.table.parameters.prompt_logprobs[slots]
        lasts = numpy.minimum(rows.ends, self.table.num_prompt[slots] - 1)
        asking = numpy.flatnonzero((wanted != NO_LOGPROBS) & (rows.starts < lasts))
        parts = []
        for row in asking.tolist():
            first, count = batch.query_starts[row], int(lasts[row] - rows.starts[row])
            following = self.table.histories[int(slots[row]), int(rows.starts[row]) + 1 : int(lasts[row]) + 1]
            positions = torch.arange(first, first + count, device=hidden.device)
            found = self._logprobs_of(hidden, positions, following.long(), int(wanted[row]))
            parts.append(found.part(row, True, slice(None), int(wanted[row])))
        return parts

    def _logprobs_of(self, hidden: Tensor, positions: Tensor, following: Tensor, num_top: int) -> TokenLogprobs:
        length = piece_length(self.table.vocab_size)
        pieces = []
        for start in range(0, len(following), length):
            logits = self.model.logits(hidden, positions[start : start + length])
            pieces.append(token_logprobs(logits, following[start : start + length], num_top))
        return joined(pieces)

    def _copy_blocks(self, plan: StepPlan) -> None:
        if plan.copies:
            pairs = numpy.frombuffer(plan.copies, numpy.int32).astype(numpy.int64).reshape(-1, 2)
            if pairs.min() < 0 or pairs.max() >= self.kv.num_blocks:
                raise PlanError(f"The plan copies a block outside 0..{self.kv.num_blocks - 1}.")
            sources, targets = (on_device(pairs[:, side].copy(), self.table.device) for side in (0, 1))
            self.kv.copy_blocks(sources, targets)

    def _mask(self, plan: StepPlan, rows: StepRows, await_mask: AwaitMask) -> Mask:
        frame = await_mask(plan.step)
        masked, framed = numpy.array(values(plan.masked)), numpy.array(values(frame.rows))
        words = -(-self.table.vocab_size // 32)
        if sorted(masked) != sorted(framed) or len(frame.bits) != len(framed) * words * 4:
            raise PlanError(
                f"The mask of step {plan.step} has rows {framed.tolist()} and {len(frame.bits)} bytes, where the plan "
                f"masks rows {masked.tolist()} at {words * 4} bytes each."
            )
        bits = numpy.frombuffer(frame.bits, numpy.int32).reshape(-1, words)
        place = numpy.cumsum(rows.is_sampling) - 1  # of a row among those that sample
        return Mask(place[framed], on_device(bits.copy(), self.table.device))


def _check_masked(plan: StepPlan, rows: StepRows) -> None:
    sampling = set(numpy.flatnonzero(rows.is_sampling).tolist())
    if not sampling.issuperset(values(plan.masked)):
        raise PlanError(f"The plan masks rows {values(plan.masked).tolist()}, and of these some sample nothing.")


def _result(step: int, rows: StepRows, outcome: Outcome, seconds: float) -> StepResult:
    sampling = numpy.flatnonzero(rows.is_sampling)
    is_right = outcome.faults == 0
    num_sampled = numpy.zeros(len(rows), numpy.int32)
    num_sampled[sampling[is_right]] = 1
    failed = numpy.flatnonzero(~is_right).tolist()
    wrong = {int(sampling[place]) for place in failed}
    return StepResult(
        step=step,
        num_sampled=num_sampled.tobytes(),
        sampled=column(outcome.token_ids[is_right].tolist()),
        forward_time=seconds,
        failed=[FailedRow(int(sampling[place]), FAULTS[outcome.faults[place]]) for place in failed],
        logprobs=[part for part in outcome.logprobs if part.is_prompt or part.owner not in wrong],
    )
