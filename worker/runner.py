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
from ..protocol.messages import (
    Candidates,
    FailedRow,
    Logprobs,
    MaskFrame,
    StepPlan,
    StepResult,
    column,
    mask_bytes,
    values,
)
from ..protocol.trace import Trace
from .batch import Batch
from .candidates import candidates
from .decode_steps import DecodeSteps
from .device import on_device
from .kv_cache import KVCache
from .logprobs import TokenLogprobs, joined, logprobs_of_rows, piece_length, token_logprobs
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


_NONE = numpy.empty(0, numpy.int64)


class Outcome(NamedTuple):
    """What a step brought, on the host."""

    logprobs: list[Logprobs]
    token_ids: numpy.ndarray = _NONE  # one for each row that sampled
    faults: numpy.ndarray = _NONE
    failed: list[FailedRow] = []
    candidates: list[Candidates] = []
    certainty: bytes = b""


class Drawn(NamedTuple):
    """What sampling brought, its tokens still on the device."""

    sampled: Sampled
    logprobs: list[Logprobs] = []
    certainty: bytes = b""
    errors: dict[int, str] = {}  # by slot


class Runner:
    def __init__(
        self,
        model: Model,
        kv: KVCache,
        table: SlotTable,
        ranks: Parallel,
        *,
        trace: Trace,
        decodes: DecodeSteps | None = None,
    ) -> None:
        self.model = model
        self.kv = kv
        self.table = table
        self.ranks = ranks
        self.trace = trace
        self.decodes = decodes  # takes the steps that it can

    def step(self, plan: StepPlan, await_mask: AwaitMask) -> StepResult:
        point("worker.step")
        if self.decodes is not None and (result := self.decodes.result(plan)) is not None:
            return result
        return self._step_of_any_rows(plan, await_mask)

    @torch.inference_mode()
    def _step_of_any_rows(self, plan: StepPlan, await_mask: AwaitMask) -> StepResult:
        start = time.perf_counter()
        rows = self.table.apply(plan)
        _check_masked(plan, rows)
        self._copy_blocks(plan)
        if len(rows):
            outcome = self._compute(plan, rows, await_mask)
        else:
            outcome = Outcome([])
        return _result(plan.step, rows, outcome, time.perf_counter() - start)

    def _compute(self, plan: StepPlan, rows: StepRows, await_mask: AwaitMask) -> Outcome:
        batch = step_batch(self.table, rows, self.kv)
        with self.trace.span("forward", step=plan.step, rows=len(rows), tokens=len(batch.positions)):
            hidden = self.model.forward(batch)
        logprobs = self._prompt_logprobs(rows, batch, hidden)
        if not rows.wants_logits.any():
            return Outcome(logprobs)
        with self.trace.span("sample", step=plan.step):
            logits = self.model.logits(hidden, batch.logit_rows)
            mask = self._mask(plan, rows, await_mask) if plan.masked and self.ranks.rank == 0 else None
            outcome = Outcome(logprobs)
            if rows.is_searched.any():
                outcome, logits = self._search(rows, logits, outcome)
            return self._sample(rows, logits, mask, outcome) if rows.is_sampling.any() else outcome

    def _search(self, rows: StepRows, logits: Tensor, outcome: Outcome) -> tuple[Outcome, Tensor]:
        """Candidates of the rows that sample nothing, and the logits of the others."""
        is_searched = rows.is_searched[rows.wants_logits]
        if self.ranks.rank == 0:
            own = logits[on_device(numpy.flatnonzero(is_searched), logits.device)]
            counts = self.table.num_candidates[rows.slots[rows.is_searched]]
            given, failed = candidates(own, numpy.flatnonzero(rows.is_searched), counts)
            outcome = outcome._replace(candidates=given, failed=failed)
        # Ranks other than 0 may have no logits, and need none.
        others = on_device(numpy.flatnonzero(~is_searched), self.table.device)
        return outcome, logits[others] if self.ranks.rank == 0 else logits

    def _sample(self, rows: StepRows, logits: Tensor, mask: Mask | None, outcome: Outcome) -> Outcome:
        sampling = numpy.flatnonzero(rows.is_sampling)
        slots, positions = rows.slots[sampling], rows.ends[sampling]
        if self.ranks.rank == 0:
            drawn = self._draw(sampling, slots, positions, logits, mask)
        else:
            drawn = Drawn(Sampled(*torch.zeros(2, len(slots), dtype=torch.int64, device=self.table.device)))
        # All histories agree because all have rank 0's tokens.
        token_ids = self.ranks.broadcast(drawn.sampled.token_ids)
        where = (on_device(slots, self.table.device), on_device(positions, self.table.device))
        self.table.histories[where] = token_ids.to(torch.int32)
        on_host = torch.stack((token_ids, drawn.sampled.faults)).cpu().numpy()
        return outcome._replace(
            logprobs=outcome.logprobs + drawn.logprobs,
            token_ids=on_host[0],
            faults=on_host[1],
            failed=outcome.failed + _failed(sampling, slots, on_host[1], drawn.errors),
            certainty=drawn.certainty,
        )

    def _draw(
        self, sampling: numpy.ndarray, slots: numpy.ndarray, positions: numpy.ndarray, logits: Tensor, mask: Mask | None
    ) -> Drawn:
        parameters = self.table.parameters
        if point("worker.logits") == "nan":
            logits[0] = torch.nan
        rows = SamplingRows(parameters, slots, positions, self.table.num_prompt[slots], self.table.histories)
        asking = numpy.flatnonzero(parameters.logprobs[slots] != NO_LOGPROBS)
        watching = numpy.flatnonzero(~numpy.isnan(parameters.least_logprob[slots]))
        if not len(asking) and not len(watching):
            return Drawn(sample(logits, rows, mask), errors=rows.errors)
        index, watched = on_device(asking, logits.device), on_device(watching, logits.device)
        raw, raw_watched = logits[index], logits[watched]  # the sampler overwrites them
        sampled = sample(logits, rows, mask)
        logprobs, certainty = [], b""
        if len(asking):
            owners, num_top = sampling[asking], parameters.logprobs[slots[asking]]
            logprobs = logprobs_of_rows(raw, sampled.token_ids[index], owners, num_top)
        if len(watching):
            least = parameters.least_logprob[slots[watching]]
            is_certain = token_logprobs(raw_watched, sampled.token_ids[watched], 0).logprobs[:, 0] >= least
            certainty = column(numpy.stack((sampling[watching], is_certain), 1).ravel().tolist())
        return Drawn(sampled, logprobs, certainty, rows.errors)

    def _prompt_logprobs(self, rows: StepRows, batch: Batch, hidden: Tensor) -> list[Logprobs]:
        """Of the prompt tokens that this step's hidden states speak of: each position's says the next token."""
        slots = rows.slots
        wanted = self.table.parameters.prompt_logprobs[slots]
        is_wanted = wanted != NO_LOGPROBS
        if not is_wanted.any():
            return []
        lasts = numpy.minimum(rows.ends, self.table.num_prompt[slots] - 1)
        asking = numpy.flatnonzero(is_wanted & (rows.starts < lasts))
        parts = []
        for row in asking.tolist():
            first, count = batch.query_starts[row], int(lasts[row] - rows.starts[row])
            following = self.table.histories[int(slots[row]), int(rows.starts[row]) + 1 : int(lasts[row]) + 1]
            positions = torch.arange(first, first + count, device=hidden.device)
            pieces = self._logprobs_of(hidden, positions, following.long(), int(wanted[row]))
            if pieces:
                parts.append(joined(pieces).part(row, True, slice(None), int(wanted[row])))
        return parts

    def _logprobs_of(self, hidden: Tensor, positions: Tensor, following: Tensor, num_top: int) -> list[TokenLogprobs]:
        """In pieces. All ranks compute the logits together; only rank 0 reads them, the others get no pieces."""
        length = piece_length(self.table.vocab_size, num_top)
        pieces = []
        for start in range(0, len(following), length):
            logits = self.model.logits(hidden, positions[start : start + length])
            if self.ranks.rank == 0:
                pieces.append(token_logprobs(logits, following[start : start + length], num_top))
        return pieces

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
        words = mask_bytes(self.table.vocab_size) // 4
        if sorted(masked) != sorted(framed) or len(frame.bits) != len(framed) * words * 4:
            raise PlanError(
                f"The mask of step {plan.step} has rows {framed.tolist()} and {len(frame.bits)} bytes, where the plan "
                f"masks rows {masked.tolist()} at {words * 4} bytes each."
            )
        bits = numpy.frombuffer(frame.bits, numpy.int32).reshape(-1, words)
        place = numpy.cumsum(rows.is_sampling) - 1  # of a row among those that sample
        return Mask(place[framed], on_device(bits.copy(), self.table.device))


def _check_masked(plan: StepPlan, rows: StepRows) -> None:
    if plan.masked and not set(numpy.flatnonzero(rows.is_sampling).tolist()).issuperset(values(plan.masked)):
        raise PlanError(f"The plan masks rows {values(plan.masked).tolist()}, and of these some sample nothing.")


def _failed(
    sampling: numpy.ndarray, slots: numpy.ndarray, faults: numpy.ndarray, errors: dict[int, str]
) -> list[FailedRow]:
    """The rows that went wrong, each with what is known of it."""
    failed = []
    for at in numpy.flatnonzero(faults).tolist():
        code, message = FAULTS[faults[at]]
        if (own := errors.get(int(slots[at]))) is not None:
            code, message = 500, own
        failed.append(FailedRow(int(sampling[at]), message, code))
    return failed


def _result(step: int, rows: StepRows, outcome: Outcome, seconds: float) -> StepResult:
    sampling = numpy.flatnonzero(rows.is_sampling)
    is_right = outcome.faults == 0
    num_sampled = numpy.zeros(len(rows), numpy.int32)
    num_sampled[sampling[is_right]] = 1
    wrong = set(sampling[~is_right].tolist())
    return StepResult(
        step=step,
        num_sampled=num_sampled.tobytes(),
        sampled=column(outcome.token_ids[is_right].tolist()),
        forward_time=seconds,
        failed=outcome.failed,
        logprobs=[part for part in outcome.logprobs if part.is_prompt or part.owner not in wrong],
        candidates=outcome.candidates,
        certainty=outcome.certainty,
    )
