"""Reads a model's own heads for further tokens (MTP), and lets heads draft: these, or EAGLE-3's."""

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import cast

import numpy

from ...kernels.arrays import Array, DeviceArray
from ...kernels.operands import PlacedRows
from ...protocol.errors import ConfigError
from ...protocol.messages import StepPlan, StepResult
from ...protocol.options.quantization import by_pattern
from ...protocol.processes.trace import Trace
from ..backends.native.backend import NativeBackend
from ..backends.native.decoder import RecordedDecoder, RecordedStream
from ..description.config import ModelConfig
from ..description.draft_heads import find_form, head_config
from ..drafting.models.draft_heads import DraftHeads
from ..layers.draft_head import DraftHead, HeadParts
from ..layers.eagle_head import EagleHead
from ..plan_error import PlanError
from ..ranks.parallel import Parallel
from ..runner import Runner
from ..sampler import Mask, Sampler, SamplerOutput, SamplingRows
from ..steps.batch import Batch
from ..weights.weights import Placement, Source, Weights
from .draft_model import following, no_mask
from .model import LoadReport, Model


class HeadPass:
    """The forward pass of a head: one record for the model's hidden states, and one for the head's own."""

    def __init__(
        self, method: str, of_model: RecordedStream, of_own: RecordedStream, states: Callable[[int], Array]
    ) -> None:
        """`states` returns what the head reads of the model's last step, which had so many tokens."""
        self.method, self.states = method, states
        self._of_model, self._of_own = of_model, of_own
        self._current = of_model
        self.hidden: Array = numpy.empty((0, 0), numpy.float32)  # [T, hidden], for the next batch
        self.output: DeviceArray = self.hidden  # of the last one

    def read(self, hidden: Array, *, reads_model: bool) -> None:
        self._current = self._of_model if reads_model else self._of_own
        self.hidden = numpy.ascontiguousarray(hidden)

    @property
    def num_layers(self) -> int:
        return self._current.num_layers

    def forward(self, batch: Batch) -> DeviceArray:
        every = numpy.arange(len(batch.positions))
        batch.placed = PlacedRows(self.hidden, every, every)
        self.output = self._current.forward(batch)
        return self.output

    def compute_layers(self, batch: Batch, first: int, end: int) -> None:
        raise PlanError("Heads read the hidden states of whole steps, and this one has layers of a chunk.")

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray:
        return self._current.logits(hidden, rows)


def require_recorded(model: Model, method: str) -> tuple[NativeBackend, RecordedDecoder]:
    """Return the model's backend and record; refuse heads where a model's hidden states can't be had."""
    if not isinstance(model.backend, NativeBackend) or model.decoder.placement.ranks.size > 1:
        raise ConfigError(
            f"speculative_config: method {method} needs native kernels of a CPU and tensor_parallel_size=1 so far. Use "
            "another method, or leave it out."
        )
    return model.backend, cast(RecordedDecoder, model.forward_pass)


def head_placement(model: Model, source: Source, quantization: str | None) -> Placement:
    """The model's placement with this format for the projections of a head among the source's tensors."""
    placement, kinds = model.decoder.placement, by_pattern(quantization).items()
    layers = {name.removesuffix(".weight") for name in source.names if name.endswith("_proj.weight")}
    named = {layer: kind for pattern, kind in kinds for layer in layers if fnmatchcase(layer, pattern)}
    formats = {layer: model.backend.quantized(kind) for layer, kind in named.items() if kind is not None}
    own = replace(placement.formats, named={**placement.formats.named, **formats})
    return replace(placement, formats=own, cache=None, adapters=None)


def with_draft_heads(
    model: Model, folder: Path, opened: Callable[[], Source], quantization: str | None = None
) -> Model:
    """The model with its own heads to draft; `opened` opens its checkpoint again."""
    backend, recorded = require_recorded(model, "mtp")
    source = opened()
    names = set(source.names)
    form = find_form(names, model.config.num_layers)
    if form is None:
        raise ConfigError(
            f"speculative_config: {folder.name} ({model.config.family.name}) has no heads for further tokens (MTP), or "
            'not in a form that is known here. Use method "suffix" or "draft_model".'
        )
    config = head_config(model.config, form, names)
    parts = HeadParts(Weights(source, head_placement(model, source, quantization)), config, form, recorded.decoder)
    unread = set(source.leftovers())
    report = replace(model.report, leftovers=[name for name in model.report.leftovers if name in unread])
    of_model = DraftHead(parts, recorded.decoder.norm)
    of_own = DraftHead(parts, parts.norm if form.feeds_normed else None)
    forward_pass = HeadPass("mtp", backend.record(of_model), backend.record(of_own), recorded.last_hidden)
    return with_heads(replace(model, report=report), config, of_model, forward_pass)


def with_heads(model: Model, config: ModelConfig, head: DraftHead | EagleHead, forward_pass: HeadPass) -> Model:
    """The model with heads that read its hidden states; `config` describes their layers."""
    draft = Model(
        config=config,
        decoder=head,
        forward_pass=forward_pass,
        sample=model.backend.sample(forward_pass),
        backend=model.backend,
        dtype=model.dtype,
        report=LoadReport(0, [], ()),
    )
    return replace(model, draft_config=config, draft=draft, reads_states=True)


def draft_heads_of(draft: Model, num_layers: int, runner: Runner, most: int | None) -> DraftHeads:
    """Let heads draft for the sequences of their model's runner, up to `most` tokens a step; the model has
    `num_layers`."""
    own, memory = following(draft.config, num_layers, runner, most)
    forward_pass = cast(HeadPass, draft.forward_pass)
    trace = Trace(None, "")
    steps = Runner(
        forward_pass,
        memory,
        own.table,
        Parallel(),
        trace=trace,
        sampling=draft.backend.sampling,
        batch=draft.backend.batch,
        sample=partial(_sampled_behind, draft.sample),
    )

    def compute(plan: StepPlan, hidden: Array, *, reads_model: bool) -> tuple[StepResult, Array]:
        forward_pass.read(hidden, reads_model=reads_model)
        result = steps.step(plan, no_mask)
        return result, forward_pass.output

    return DraftHeads(forward_pass.method, compute, forward_pass.states, own)


def _sampled_behind(sample: Sampler, logits: DeviceArray, rows: SamplingRows, mask: Mask | None) -> SamplerOutput:
    """Draw each token as the model will draw it, at the next position: a head's history lacks the first token."""
    drawn = sample(logits, replace(rows, positions=rows.positions + 1), mask)
    rows.keep(drawn.token_ids)
    return drawn
