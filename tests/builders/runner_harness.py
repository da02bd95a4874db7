"""Drives a real runner with a real scheduler in one process, and collects what every sequence was given.

`SlottedRunner` is a runner over its own small KV memory; `TinyEngine` plans for it, two steps ahead, as the engine
does. What comes out must not depend on how it was planned.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from builders.erratic_drafts import draft_erratically
from builders.erratic_pace import hold_back

from penstock.engine.adapters import AdapterTable
from penstock.engine.admission.limits import DraftLimits, Limits
from penstock.engine.loop import STEPS_IN_FLIGHT
from penstock.engine.scheduler import Scheduler
from penstock.protocol.adapter_messages import AdapterLoaded, LoadLora
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import (
    Logprobs,
    MaskFrame,
    Prompt,
    SequenceEnded,
    StepPlan,
    StepResult,
    Tokens,
    sequence_id,
)
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, values, wide_values
from penstock.worker.description.groups import groups_of
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.start.model import Model
from penstock.worker.steps.block_tables import BlockTables
from penstock.worker.steps.slots import SlotTable


class SlottedRunner(Runner):
    """A runner over its own small KV memory, which knows its model."""

    model: Model


def slotted_runner(
    model: Model,
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    max_model_len: int = 256,
    num_slots: int = 16,
    num_states: int | None = None,
    num_cells: int = 0,
    gives_back: bool | None = None,
    num_media_rows: int = 512,
) -> SlottedRunner:
    """`num_media_rows` are of a model that sees. `num_states` are as many as there are blocks, if none are given.
    `gives_back` says whether windows have groups of their own; None: as the backend has it."""
    groups = model.groups(max_model_len)
    if gives_back is not None:
        groups = groups_of(model.config, max_model_len, gives_back)
    counts = [num_states or num_blocks if group.kind == "state" else num_blocks for group in groups]
    memory = model.memory(groups, counts, block_size)
    table = SlotTable(
        num_slots, max_model_len, counts, block_size, model.vocab_size, model.backend.device,
        shifts_rotations=model.shifts_rotations, media_tokens=model.config.media_tokens, groups=groups,
        rows_of_type=model.rows_of_type,
        padding_token=model.padding_token,
    )  # fmt: skip
    ranks, trace = Parallel(), Trace(None, "test")
    fast, cells = model.fast_decode(memory, table, ranks, trace), model.second_tiers(memory, [num_cells] * len(groups))
    runner = SlottedRunner(
        model.forward_pass, memory, table, ranks, trace=trace, sampling=model.backend.sampling, fast_decode=fast,
        second_tiers=cells, media=model.kept_media(num_media_rows), batch=model.backend.batch, sample=model.sample,
    )  # fmt: skip
    runner.model, runner.pooling = model, model.pooler() or runner.pooling
    return runner


def fast_steps(runner: Runner) -> list[int]:
    """The numbers of the steps that the runner's fast path takes from now on, as they come."""
    launch, taken = runner.fast_decode.launch, []

    def watched(plan: StepPlan) -> Any:
        arriving = launch(plan)
        if arriving is not None:
            taken.append(plan.step)
        return arriving

    runner.fast_decode = SimpleNamespace(launch=watched)
    return taken


def prompt(request_id: int, token_ids: Sequence[int], seed: int = 0, **params) -> Prompt:
    settled = {"temperature": 0, "max_tokens": 8, "eos_token_id": [], **params}
    return Prompt(request_id, column(token_ids), SamplingParams(**settled), seed=seed, arrival_time=0.0)


def no_mask(step: int) -> MaskFrame:
    raise AssertionError(f"step {step} was not masked")


@dataclass
class Answer:
    """What a detokenizer would have been told of one sequence; equal answers are equal bit for bit."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    prompt_logprobs: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    vectors: bytes = b""

    def take(self, entry: Logprobs) -> None:
        (self.prompt_logprobs if entry.is_prompt else self.logprobs).extend(positions(entry))

    def end(self, ended: SequenceEnded) -> None:
        self.finish_reason, self.error = ended.finish_reason, ended.error_msg


def positions(entry: Logprobs) -> list[tuple[bytes, bytes, bytes]]:
    """Each position's token ids, log-probabilities and rank, as they came."""
    wide, count = entry.width * 4, len(entry.ranks) // 4
    assert len(entry.token_ids) == len(entry.logprobs) == wide * count
    return [
        (
            entry.token_ids[wide * place : wide * (place + 1)],
            entry.logprobs[wide * place : wide * (place + 1)],
            entry.ranks[4 * place : 4 * (place + 1)],
        )
        for place in range(count)
    ]


def group_plans(runner: Runner) -> tuple[GroupPlan, ...]:
    """What the engine is told of the runner's memory."""
    plans = []
    for number, group in enumerate(runner.table.groups):
        num_cells = runner.second_tiers[number].num_cells if runner.second_tiers else 0
        if isinstance(group, BlockTables):
            kind = "full" if group.window is None else "window"
            plans.append(GroupPlan(kind, 1, 1, group.num_blocks, group.window, num_cells))
        else:
            plans.append(GroupPlan("state", 1, 1, group.num_states, None, num_cells))
    return tuple(plans)


def media_plan(runner: Runner) -> MediaPlan | None:
    """Likewise of what it sees with."""
    if (kept := runner.media) is None:
        return None
    config, full = kept.config, len(kept.config.full_layers)
    most, row_bytes = 64 * 4096, kept.rows[0].nbytes
    return MediaPlan(len(kept.rows), row_bytes, config.num_layers, most, 4096, config.frames_together, full, 64)


class TinyEngine:
    def __init__(self, runner: Runner, *, shares_prefixes: bool = True, **options) -> None:
        table = runner.table
        settled = {"max_num_batched_tokens": 512, "static_decode_blocks": 0, "max_num_seqs": len(table.is_taken)}
        self.scheduler = Scheduler(
            Limits(
                groups=group_plans(runner),
                block_size=table.block_size,
                max_model_len=table.max_model_len,
                stretches=runner.model.stretches if isinstance(runner, SlottedRunner) else (),
                media=media_plan(runner),
                **{**settled, **options},
            ),
            shares_prefixes=shares_prefixes,
            adapters=AdapterTable(8, 1, lambda message: None, lambda message: None),
        )
        self.runner = runner
        self.answers: dict[int, Answer] = {}
        self.plans: list[StepPlan] = []

    def load_adapters(self, *names: str) -> None:
        """As an engine does, in places from 0 on; the runner's model has them already."""
        for place, name in enumerate(names):
            self.scheduler.adapters.load(LoadLora(place, name, ""))
            self.scheduler.adapters.loaded(AdapterLoaded(0, place))

    @property
    def num_layered(self) -> int:
        """How often it has gone on with a chunk whose first layers an earlier step computed."""
        return sum(each.first_layer > 0 for plan in self.plans for each in plan.layered)

    def run(self, *prompts: Prompt) -> list[Answer]:
        """The answers to these, sample after sample, once all are complete."""
        for each in prompts:
            self.scheduler.add(each)
        results: deque[StepResult] = deque()
        while True:
            while len(results) < STEPS_IN_FLIGHT and (plan := self.scheduler.plan()) is not None:
                self.plans.append(plan)
                results.append(self.runner.step(plan, no_mask))
            self._hear(self.scheduler.take_ends())
            if not results:
                break
            self._hear(self.scheduler.finish(results.popleft()))
        return [
            self.answers[sequence_id(each.request_id, sample)] for each in prompts for sample in range(each.params.n)
        ]

    def _hear(self, told: Tokens | None) -> None:
        if told is None:
            return
        for opened in told.opened:
            self.answers[opened.sequence_id] = Answer()
        tokens = iter(values(told.token_ids))
        for owner, count in zip(wide_values(told.sequence_ids), values(told.num_tokens), strict=True):
            self.answers[owner].tokens.extend(next(tokens) for _ in range(count))
        for entry in told.logprobs:
            self.answers[entry.owner].take(entry)
        for vectors in told.vectors:
            self.answers[vectors.owner].vectors = vectors.values
        for ended in told.ended:
            self.answers[ended.sequence_id].end(ended)


def expecting(asked: list[Prompt], answers: list[Answer]) -> list[Prompt]:
    """The prompts, each with its answers to draft from."""
    found = iter(answers)
    for each in asked:
        each.expected = [column(next(found).tokens) for _ in range(each.params.n)]
    return asked


def engine_of(model: Model, *, layered: int = 0, drafts: int | None = None, **options: Any) -> TinyEngine:
    """On a runner of its own; options are those of `slotted_runner` and those of `TinyEngine`. With a seed `layered`,
    chance decides how many layers of prompts a step computes; with a seed `drafts`, rows draft what is expected, with
    mistakes."""
    shape = {name: options.pop(name) for name in slotted_runner.__kwdefaults__ if name in options}
    if drafts is not None:
        options.setdefault("draft_limits", DraftLimits(each=9, all=64))
    engine = TinyEngine(slotted_runner(model, **shape), num_layers=model.config.num_layers, **options)
    if layered:
        hold_back(engine.scheduler, layered)
    if drafts is not None:
        draft_erratically(engine.runner, drafts)
    return engine
