"""Runs one step after another: plan → batch → forward → sample → result.

A runner is a pure function of the message stream: the same plans and masks give the same results. It never drops a
request; a failed row is marked in the result and continues with a harmless token until the engine ends it.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy

from ..kernels.arrays import DeviceArray
from ..kernels.sampling import Sampling
from ..protocol.media import MediaRows
from ..protocol.messages import ChunkLayers, Logprobs, MaskFrame, StepPlan, StepResult
from ..protocol.processes.faults import is_planted, passing, point
from ..protocol.processes.trace import Trace
from .disk.disk import WorkerDisk
from .drafting.drafting import Drafting
from .kv.model_memory import ModelMemory
from .kv.second_tier import SecondTier
from .media.rows import KeptMedia
from .plan_error import PlanError, require
from .pooling.labels import LabelLogprobs
from .pooling.pooling import Pooling
from .ranks.parallel import Parallel
from .sampler import Mask, Sampler, SamplerOutput, SamplingRows, sample_on_first
from .sampler import sample as plain_sample
from .sampler.parameters import NO_LOGPROBS
from .sampler.processed import process
from .steps.batch import Batch, MakeBatch, step_batch
from .steps.drafts import DrawnPlaces, StepDrafts
from .steps.forward_pass import FastDecode, ForwardPass
from .steps.layered_chunk import LayeredChunk
from .steps.logprobs import (
    MODEL_LOGPROBS,
    LogprobOperations,
    Reported,
    TokenLogprobs,
    certainty,
    logprobs_of_prompt,
    piece_length,
)
from .steps.masks import StepMasks, check_masked
from .steps.outcome import Outcome
from .steps.slots import SlotTable
from .steps.step_rows import StepRows

AwaitMask = Callable[[int], MaskFrame]
_SOON = 0.05  # seconds within which a following step would arrive
_PIECE_AT_LEAST = 64  # places whose tokens are drawn at once: as many as a captured step with drafts has


class Runner:
    def __init__(
        self,
        forward_pass: ForwardPass,
        memory: ModelMemory,
        table: SlotTable,
        ranks: Parallel,
        *,
        trace: Trace,
        sampling: Sampling,
        fast_decode: FastDecode | None = None,
        second_tiers: Sequence[SecondTier] = (),
        media: KeptMedia | None = None,
        batch: MakeBatch = step_batch,
        sample: Sampler | None = None,
        reported: Reported = MODEL_LOGPROBS,
    ) -> None:
        self.forward_pass = forward_pass
        self.memory = memory
        self.table = table
        self.ranks = ranks
        self.trace = trace
        self._may_break = is_planted("worker.logits")
        self._begin = passing("worker.step", self._launch)
        self._forward = trace.timed(
            "forward",
            self._hidden,
            step=lambda plan, rows, batch: plan.step,
            rows=lambda plan, rows, batch: len(rows),
            tokens=lambda plan, rows, batch: batch.num_tokens,
        )
        self._choose = trace.timed("sample", self._chosen, step=lambda plan, *_: plan.step)
        self.fast_decode = fast_decode  # executes the steps that it supports
        self.second_tiers = second_tiers  # one per group of layers, or none
        self.media = media  # for a model with vision
        self.disk: WorkerDisk | None = None  # that keeps blocks between runs
        self.drafting: Drafting | None = None  # if rows may have drafts
        self._batch = batch
        self._layered = LayeredChunk(table, forward_pass, self._batch_of)
        self._sampled = sample or partial(plain_sample, sampling)
        self._logprobs = LogprobOperations(sampling, table.device, reported)
        # Of prompts that end in numbers; a model that gives vectors has a `Pooling` instead.
        self.pooling: Pooling | LabelLogprobs = LabelLogprobs(
            LogprobOperations(sampling, table.device), forward_pass, table.vocab_size, is_first=ranks.rank == 0
        )
        self._has_pooled = False  # once a prompt is to end in numbers: until then no step asks
        self._last_end = 0.0
        self._is_launching = False
        self._last_launch = 0.0

    def step(self, plan: StepPlan, await_mask: AwaitMask) -> StepResult:
        return self.launch(plan, await_mask)()

    def launch(self, plan: StepPlan, await_mask: AwaitMask) -> Callable[[], StepResult]:
        """Launch the step; the returned function waits for it and returns its result."""
        self._is_launching = True
        try:
            return self._begin(plan, await_mask)
        finally:
            if plan.slots or plan.encodes or plan.layered:  # else it only moved blocks
                self._last_launch = time.perf_counter()
            self._is_launching = False

    def is_busy(self) -> bool:
        """Whether a step is running (a CPU computes it at launch) or probably about to. Callable from any thread."""
        return self._is_launching or time.perf_counter() - self._last_launch < _SOON

    def _launch(self, plan: StepPlan, await_mask: AwaitMask) -> Callable[[], StepResult]:
        if self.drafting is not None:
            self.drafting.follow(plan)
        if any(group.saves or group.loads for group in plan.groups):
            with self.table.device.computing():
                self._move_blocks(plan)  # only moves blocks, so it can run before the step is dispatched
        if plan.disk is not None:
            require(self.disk is not None, "has orders for a disk, and nothing is kept there")
            self.disk.take(plan.disk)  # type: ignore[union-attr]
        drafts = None if self.drafting is None else self.drafting.begin(plan)
        start = time.perf_counter()
        arriving = None if self.fast_decode is None or drafts else self.fast_decode.launch(plan)
        if arriving is None:
            with self.table.device.computing():
                arriving = partial(self._outcome(plan, await_mask, drafts).result, plan.step)
        return lambda: self._timed(plan, arriving(), start)

    def _timed(self, plan: StepPlan, result: StepResult, start: float) -> StepResult:
        """Add the step's time: a step launched while another ran began when that one ended."""
        end = time.perf_counter()
        result.forward_time = end - max(start, self._last_end)
        self._last_end = end
        if self.drafting is not None:
            self.drafting.learn(plan, result)
        return result

    def _outcome(self, plan: StepPlan, await_mask: AwaitMask, drafts: StepDrafts | None) -> Outcome:
        rows = self.table.apply(plan, drafts)
        if plan.masked:
            check_masked(plan, rows)
        self._has_pooled = self._has_pooled or any(new.pooled is not None for new in plan.new)
        if self._has_pooled:
            self.pooling.enter(plan)
        self._copy_blocks(plan)
        self._encode(plan)
        for layers in plan.layered:
            self._compute_layers(plan.step, layers)
        outcome = Outcome(rows, drafts=drafts)
        if len(rows):
            self._compute(plan, outcome, await_mask)
        if drafts is not None:
            drafts.compare(*outcome.drawn()[:2])
            self.table.take_back(rows, drafts)
        return outcome

    def _compute(self, plan: StepPlan, outcome: Outcome, await_mask: AwaitMask) -> None:
        rows = outcome.rows
        batch = self._batch_of(rows, plan.media)
        hidden = self._forward(plan, rows, batch)
        outcome.logprobs += self._prompt_logprobs(rows, batch, hidden)
        if self._has_pooled:
            outcome.vectors = self.pooling.vectors(rows, batch, hidden)
        if rows.wants_logits.any() or rows.num_drafts.any():
            self._choose(plan, outcome, await_mask, hidden, batch)

    def _batch_of(self, rows: StepRows, media: Sequence[MediaRows]) -> Batch:
        batch = self._batch(self.table, rows, self.memory)
        if media and self.media is not None:
            batch.placed = self.media.placed(media, batch.query_starts)
            batch.seen_ends = self.media.seen_ends(media, batch.query_starts, batch.context_lengths)
        return batch

    def _compute_layers(self, step: int, layers: ChunkLayers) -> None:
        require(not layers.media or self.media is not None, "has media, and this model doesn't see")
        num_layers = layers.end_layer - layers.first_layer
        with self.trace.span("layers", step=step, tokens=layers.num_tokens, layers=num_layers):
            self._layered.compute(layers)

    def _hidden(self, plan: StepPlan, rows: StepRows, batch: Batch) -> DeviceArray:
        return self.forward_pass.forward(batch)

    def _chosen(
        self, plan: StepPlan, outcome: Outcome, await_mask: AwaitMask, hidden: DeviceArray, batch: Batch
    ) -> None:
        """Compute the logits, and search for the next tokens or draw them, in pieces as `_logprobs_of`."""
        rows, table = outcome.rows, self.table
        if rows.is_searched.any():
            self._search(outcome, hidden, batch)
        places = DrawnPlaces.of(rows)
        if not len(places):
            return
        is_masked = bool(plan.masked) and self.ranks.rank == 0
        masks = cache(lambda: StepMasks.of(plan, rows, await_mask(plan.step), table.vocab_size) if is_masked else None)
        length = piece_length(table.vocab_size, int(table.parameters.logprobs[places.slots].max()))
        for start, own in places.pieces(max(length, len(rows), _PIECE_AT_LEAST)):
            # A captured step has computed the logits of all places, and is asked for them by these rows.
            tokens = batch.logit_rows if len(own) == len(places) else table.device.put(own.tokens)
            logits = self.forward_pass.logits(hidden, tokens)
            mask = None if (found := masks()) is None else found.of_places(start, start + len(own))
            self._sample(outcome, own, logits, mask)

    def _encode(self, plan: StepPlan) -> None:
        """Apply the plan's media."""
        keeps_rows = plan.disk is not None and plan.disk.has_rows
        if not (plan.dropped_entries or plan.encodes or plan.media or keeps_rows):
            return
        if self.media is None:
            raise PlanError("The plan has media, and this model doesn't see.")
        work = sum(encode.count for encode in plan.encodes)
        with self.trace.span("encode", step=plan.step, media=len(plan.encodes), work=work):
            self.media.apply(plan)
        if keeps_rows:
            self.disk.take_rows(plan.disk)  # type: ignore[union-attr, arg-type]  # as `_launch` has required

    def _search(self, outcome: Outcome, hidden: DeviceArray, batch: Batch) -> None:
        """Find candidates for the rows that sample nothing."""
        searched = numpy.flatnonzero(outcome.rows.is_searched)
        lasts = numpy.array(batch.query_starts)[searched + 1] - 1
        logits = self.forward_pass.logits(hidden, self.table.device.put(lasts))
        if self.ranks.rank == 0:  # others may have no logits, and need none
            counts = self.table.num_candidates[outcome.rows.slots[searched]]
            outcome.candidates = self._logprobs.candidates(logits, searched, counts)

    def _sample(self, outcome: Outcome, places: DrawnPlaces, logits: DeviceArray, mask: Mask | None) -> None:
        table = self.table
        num_prompt = table.num_prompt[places.slots]
        sampling = SamplingRows(table.parameters, places.slots, places.positions, num_prompt, table.histories)
        draw = partial(self._draw, outcome, sampling, places.rows, logits, mask)
        sampled = sample_on_first(self.ranks, sampling, draw)
        outcome.sampled.append((places.rows, table.device.host_copy(sampled.chosen)))

    def _draw(
        self, outcome: Outcome, rows: SamplingRows, indices: numpy.ndarray, logits: DeviceArray, mask: Mask | None
    ) -> SamplerOutput:
        """Sample the tokens of these rows, which are the step's at `indices`, and write them into the histories."""
        if self._may_break and point("worker.logits") == "nan":
            logits[0] = numpy.nan
        parameters, slots = rows.parameters, rows.slots
        rows.errors = outcome.errors
        asking = numpy.flatnonzero(parameters.logprobs[slots] != NO_LOGPROBS)
        watching = numpy.flatnonzero(~numpy.isnan(parameters.least_logprob[slots]))
        if not len(asking) and not len(watching):
            return self._sampled(logits, rows, mask)
        index, watched = map(parameters.device.put, (asking, watching))
        raw, raw_watched = logits[index], logits[watched]  # the sampler overwrites them
        sampled = self._sampled(logits, rows, mask)
        if len(asking):
            if self._logprobs.reported.are_processed:
                own_mask = None if mask is None else mask.only(asking)
                process(self._logprobs.ops, raw, rows.only(asking), own_mask, sampled.token_ids[index])
            owners, num_top = indices[asking], parameters.logprobs[slots[asking]]
            outcome.logprobs.append(self._logprobs.of_rows(raw, sampled.token_ids[index], owners, num_top))
        if len(watching):
            found = self._logprobs.of_tokens(raw_watched, sampled.token_ids[watched], 0)
            outcome.certainty.append(certainty(found, indices[watching], parameters.least_logprob[slots[watching]]))
        return sampled

    def _prompt_logprobs(self, rows: StepRows, batch: Batch, hidden: DeviceArray) -> list[Callable[[], list[Logprobs]]]:
        """Log-probabilities of the prompt tokens that this step predicts: each position predicts the next token."""
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
            positions = self.table.device.put(numpy.arange(first, first + count))
            following = self.table.device.cast(following, numpy.int64)
            pieces = self._logprobs_of(hidden, positions, following, int(wanted[row]))
            if pieces:
                parts.append(logprobs_of_prompt(row, pieces))
        return parts

    def _logprobs_of(
        self, hidden: DeviceArray, positions: DeviceArray, following: DeviceArray, num_top: int
    ) -> list[TokenLogprobs]:
        """Compute log-probabilities in pieces. All ranks compute the logits; only rank 0 returns pieces."""
        length = piece_length(self.table.vocab_size, num_top)
        pieces = []
        for start in range(0, len(following), length):
            logits = self.forward_pass.logits(hidden, positions[start : start + length])
            if self.ranks.rank == 0:
                pieces.append(self._logprobs.told(logits, following[start : start + length], num_top))
        return pieces

    def _move_blocks(self, plan: StepPlan) -> None:
        """Copy blocks to and from the second tier of each group."""
        for number, (changes, memory) in enumerate(zip(plan.groups, self.memory.groups, strict=True)):
            tier = self.second_tiers[number] if self.second_tiers else None
            num_blocks, num_cells = memory.num_blocks, 0 if tier is None else tier.num_cells
            saves = _pairs(changes.saves, (num_blocks, num_cells), "saves")
            loads = _pairs(changes.loads, (num_cells, num_blocks), "loads")
            if tier is not None and (len(saves) or len(loads)):
                with self.trace.span("move", step=plan.step, saves=len(saves), loads=len(loads)):
                    tier.move(saves, loads)

    def _copy_blocks(self, plan: StepPlan) -> None:
        for changes, memory in zip(plan.groups, self.memory.groups, strict=True):
            if changes.copies:
                pairs = _pairs(changes.copies, (memory.num_blocks, memory.num_blocks), "copies")
                sources, targets = (self.table.device.put(pairs[:, side].copy()) for side in (0, 1))
                memory.copy_blocks(sources, targets)


def _pairs(packed: bytes, bounds: tuple[int, int], what: str) -> numpy.ndarray:
    """Check pairs of block or cell numbers, int64 [pairs, 2]."""
    pairs = numpy.frombuffer(packed, numpy.int32).astype(numpy.int64).reshape(-1, 2)
    if (pairs < 0).any() or (pairs >= bounds).any():
        raise PlanError(f"The plan {what} {pairs.tolist()}, with {bounds[0]} to take from and {bounds[1]} to fill.")
    return pairs
