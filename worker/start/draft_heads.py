"""Reads a model's own heads for further tokens (MTP), and lets them draft."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy

from ...kernels.arrays import Array, DeviceArray
from ...kernels.operands import PlacedRows
from ...protocol.errors import ConfigError
from ...protocol.messages import StepPlan, StepResult
from ...protocol.processes.trace import Trace
from ..backends.native.decoder import RecordedDecoder
from ..description.config import ModelConfig
from ..description.draft_heads import HeadForm, find_form, head_config
from ..drafting.models.draft_heads import DraftHeads
from ..layers.draft_head import DraftHead, HeadParts
from ..plan_error import PlanError
from ..ranks.parallel import Parallel
from ..runner import Runner
from ..sampler import Mask, Sampler, SamplerOutput, SamplingRows
from ..steps.batch import Batch
from ..weights.weights import Source, Weights
from .draft_model import no_mask, own_table
from .model import LoadReport, Model


class HeadPass:
    """The forward pass of a head: one record for the model's hidden states, and one for the head's own."""

    num_layers = 1

    def __init__(self, of_model: RecordedDecoder, of_own: RecordedDecoder) -> None:
        self._of_model, self._of_own = self._passes = of_model, of_own
        self._current = of_model
        self.hidden: Array = numpy.empty((0, 0), numpy.float32)  # [T, hidden], for the next batch
        self.output: DeviceArray = self.hidden  # of the last one

    def read(self, hidden: Array, is_models: bool) -> None:
        self._current, self.hidden = self._passes[not is_models], numpy.ascontiguousarray(hidden)

    def forward(self, batch: Batch) -> DeviceArray:
        every = numpy.arange(len(batch.positions))
        batch.placed = PlacedRows(self.hidden, every, every)
        self.output = self._current.forward(batch)
        return self.output

    def compute_layers(self, batch: Batch, first: int, end: int) -> None:
        raise PlanError("Heads read the hidden states of whole steps, and this one has layers of a chunk.")

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray:
        return self._current.logits(hidden, rows)


def with_draft_heads(model: Model, folder: Path, opened: Callable[[], Source]) -> Model:
    """The model with its own heads to draft; `opened` opens its checkpoint again."""
    if model.backend.library is None or model.decoder.placement.ranks.size > 1:
        raise ConfigError(
            "speculative_config: method mtp needs native kernels of a CPU and tensor_parallel_size=1 so far. Use "
            "another method, or leave it out."
        )
    source = opened()
    names = set(source.names)
    form = find_form(names, model.config.num_layers)
    if form is None:
        raise ConfigError(
            f"speculative_config: {folder.name} ({model.config.family.name}) has no heads for further tokens (MTP), or "
            'not in a form that is known here. Use method "suffix" or "draft_model".'
        )
    config = head_config(model.config, form, names)
    placement = replace(model.decoder.placement, cache=None, adapters=None)
    parts = HeadParts(Weights(source, placement), config, form, model.decoder)
    unread = set(source.leftovers())
    report = replace(model.report, leftovers=[name for name in model.report.leftovers if name in unread])
    draft = _head_model(model, config, parts, form)
    return replace(model, report=report, draft_config=config, draft=draft, drafts_itself=True)


def _head_model(model: Model, config: ModelConfig, parts: HeadParts, form: HeadForm) -> Model:
    of_model = DraftHead(parts, model.decoder.norm)
    of_own = DraftHead(parts, parts.norm if form.feeds_normed else None)
    record = model.backend.forward_pass
    forward_pass = HeadPass(record(of_model), record(of_own))  # type: ignore[arg-type]
    return Model(
        config=config,
        decoder=of_model,  # type: ignore[arg-type]
        forward_pass=forward_pass,
        sample=model.backend.sample(forward_pass),
        backend=model.backend,
        dtype=model.dtype,
        report=LoadReport(0, [], ()),
    )


def draft_heads_of(draft: Model, num_layers: int, runner: Runner, most: int | None) -> DraftHeads:
    """Let heads draft for the sequences of their model's runner, up to `most` tokens a step; the model has
    `num_layers`."""
    table, memory, numbers = own_table(draft.config, num_layers, runner)
    forward_pass: HeadPass = draft.forward_pass  # type: ignore[assignment]
    trace = Trace(None, "")
    own = Runner(
        forward_pass,
        memory,
        table,
        Parallel(),
        trace=trace,
        sampling=draft.backend.sampling,
        batch=draft.backend.batch,
        sample=partial(_sampled_behind, draft.sample),
    )

    def compute(plan: StepPlan, hidden: Array, is_models: bool) -> tuple[StepResult, Array]:
        forward_pass.read(hidden, is_models)
        result = own.step(plan, no_mask)
        return result, forward_pass.output

    hidden = runner.forward_pass.last_hidden  # type: ignore[attr-defined]
    return DraftHeads(compute, hidden, table, numbers, runner.table, draft.max_position, most)


def _sampled_behind(sample: Sampler, logits: DeviceArray, rows: SamplingRows, mask: Mask | None) -> SamplerOutput:
    """Draw each token as the model will draw it, at the next position: a head's history lacks the first token."""
    drawn = sample(logits, replace(rows, positions=rows.positions + 1), mask)
    rows.keep(drawn.token_ids)
    return drawn
