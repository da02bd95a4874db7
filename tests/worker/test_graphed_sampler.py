"""Tokens of captured steps, in Triton's interpreter: those of steps that are launched, whatever company rows have.

Where there is no GPU a capture is called again, so what it reads, its sizes and its spare rows are real.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import no_mask
from msgspec.structs import replace
from torch import Tensor

from penstock.kernels.torch.sampling import TensorSampling
from penstock.kernels.triton.sampling.race import choose
from penstock.kernels.triton.step_inputs import prepare
from penstock.protocol.messages import MaskFrame, StepPlan
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, mask_bytes, values
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.backends.torch.tensor_cache import DeviceKVCache
from penstock.worker.backends.triton.decoder import GraphedDecoder
from penstock.worker.backends.triton.device_batch import DeviceBatch
from penstock.worker.backends.triton.sampler import GraphedSampler, SamplingKind
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.kv.model_memory import ModelMemory
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.steps.slots import SlotTable

VOCABULARY, HOST = 307, torch.device("cpu")
SIZE = 5  # of all captured steps
SPARE = 9  # a slot that nobody has
ALLOWED = (17, 118, 300)
DRAWN = {"temperature": 1e6}  # every token is about as likely
GREEDY, TOP_P, TOP_K = {}, {**DRAWN, "top_p": 0.5}, {**DRAWN, "top_k": 40}
PENALIZED = {**DRAWN, "repetition_penalty": 1.5}
UNTIL_LONGER = {**DRAWN, "min_tokens": 3, "eos_token_id": [5]}

# Infinities are meant; numpy, in which kernels are interpreted, warns of them.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
Found = list[tuple[list[list[int]], list[list[int]]]]


@dataclass
class TableDecoder:
    """No layers: a token's logits stand in a table."""

    placement: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(ops=SimpleNamespace(step_inputs=prepare, activations=torch.float32))
    )
    ropes: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            tables=[], num_rows=0, end_of=int, grow_to=lambda end: None, by_layer=list
        )
    )
    hidden_size: int = 1

    def __post_init__(self) -> None:
        self.table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0))

    def stream(self, batch: DeviceBatch) -> Tensor:
        return batch.token_ids[:, None].float()

    def norm(self, hidden: Tensor) -> Tensor:
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        return self.table[hidden[:, 0].long()]

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        return self.head(hidden[rows])


def runner_on(decoder: GraphedDecoder) -> Runner:
    memory = ModelMemory.of_one(DeviceKVCache.allocate(KVShape(1, 1, 16), 16, 16, "bf16", HOST), 16)
    table = SlotTable(SPARE + 1, 16, [16], 16, VOCABULARY, TensorDevice(HOST))
    sample = GraphedSampler(decoder, TensorSampling(), choose)
    ways = {"sampling": TensorSampling(), "batch": DeviceBatch, "sample": sample}
    return Runner(decoder, memory, table, Parallel(), trace=Trace(None, "test"), **ways)


def captured() -> GraphedDecoder:
    return GraphedDecoder(TableDecoder(), TensorDevice(HOST), True, (SIZE,), captures_drafts=True)


def allowing(step: int, rows: list[int], vocab_size: int) -> MaskFrame:
    bits = numpy.zeros((len(rows), mask_bytes(vocab_size) // 4), numpy.uint32)
    for token in ALLOWED:
        bits[:, token // 32] |= numpy.uint32(1 << token % 32)
    return MaskFrame(step, column(rows), bits.tobytes())


def found_by(runner: Runner, plans: list[StepPlan]) -> Found:
    """What each step brought, and the histories behind it."""
    runner.table.histories.fill_(-1)
    steps = []
    for each in plans:
        counts = values(each.num_tokens)  # of the tokens that a masked row draws
        masked = [row for row in values(each.masked).tolist()[::-1] for _ in range(counts[row])]
        result = runner.step(each, lambda number, rows=masked: allowing(number, rows, runner.table.vocab_size))
        steps.append((sampled(result), runner.table.histories.tolist()))
    assert all(token == -1 for token in steps[-1][1][SPARE])
    return steps


def entering(number: int, asked: dict[int, dict], **rest) -> StepPlan:
    """A step of prompts of six tokens, each in the block of its slot's number."""
    entries = [new(slot, range(slot + 5, slot + 11), **params) for slot, params in asked.items()]
    return plan(number, [(slot, 6, [slot]) for slot in asked], new=entries, **rest)


def decoding(number: int, slots: list[int], **rest) -> StepPlan:
    return plan(number, [(slot, 1, []) for slot in slots], **rest)


STORIES = {
    "all kinds, fewer and fewer": [
        entering(0, dict(enumerate((GREEDY, TOP_P, TOP_K, DRAWN, GREEDY)))),
        decoding(1, [4, 0, 1, 2, 3]),
        decoding(2, [2, 0, 3]),
        decoding(3, [0, 4]),
    ],
    "masks of some, of one, of none": [
        entering(0, dict(enumerate((GREEDY, TOP_P, DRAWN)))), decoding(1, [2, 0, 1], masked=column([0, 2])),
        decoding(2, [0, 1, 2], masked=column([0])), decoding(3, [0, 1, 2]), decoding(4, [0], masked=column([0])),
    ],
    "a slot is given to another": [
        entering(0, {0: DRAWN, 1: TOP_K}),
        decoding(1, [0, 1]),
        entering(2, {1: {"temperature": 1e6, "min_p": 0.5}}, freed=column([1])),
        decoding(3, [0, 1]),
        entering(4, {0: GREEDY}, freed=column([0])),
        decoding(5, [1, 0]),
    ],
    "in company of adjusted rows": [
        entering(0, dict(enumerate((DRAWN, TOP_P, PENALIZED, UNTIL_LONGER)))),
        decoding(1, [0, 1, 2, 3]),
        decoding(2, [0, 1, 3], masked=column([1])),
        decoding(3, [0, 1, 3]),
    ],
}  # fmt: skip


@for_each("story", STORIES)
def test_tokens_are_the_same_whether_their_choice_is_captured_or_launched(story):
    decoder = captured()
    found = found_by(runner_on(decoder), STORIES[story])
    assert found == found_by(runner_on(GraphedDecoder(TableDecoder(), TensorDevice(HOST), False)), STORIES[story])
    if story.startswith("masks"):  # steps are captured by what their rows need
        assert kinds(decoder) == {SamplingKind(False, True), SamplingKind(False, False), SamplingKind(True, True)}
        masked = (found[1][0][0], found[1][0][2], found[2][0][0], found[4][0][0])
        assert all(token in ALLOWED for (token,) in masked)


def test_tokens_are_the_same_where_rows_draw_several_at_the_places_of_drafts():
    kinds_of_rows = enumerate((GREEDY, TOP_P, TOP_K, PENALIZED))
    entries = [
        replace(new(slot, range(slot + 5, slot + 15), **params), num_prompt=6, num_claimed=4)
        for slot, params in kinds_of_rows
    ]
    steps = [
        plan(0, [(slot, 6, [slot]) for slot in range(4)], new=entries),
        plan(1, [(2, 3, []), (0, 1, []), (1, 2, [])], masked=column([0, 1])),
        plan(2, [(1, 2, []), (0, 2, []), (3, 3, [])]),
        plan(3, [(0, 1, []), (2, 1, [])]),
    ]
    decoder = captured()
    found = found_by(runner_on(decoder), steps)
    assert found == found_by(runner_on(GraphedDecoder(TableDecoder(), TensorDevice(HOST), False)), steps)
    assert [[len(tokens) for tokens in drawn] for drawn, _ in found[1:]] == [[3, 1, 2], [2, 2, 3], [1, 1]]
    assert all(token in ALLOWED for tokens in found[1][0][:2] for token in tokens)
    by_shape = {key.shape: set(graph.choices) for key, graph in decoder._graphs.items()}
    # A penalized row keeps the choice of its step from being captured.
    assert by_shape == {(4, 4): {SamplingKind(False, True)}, (SIZE, 1): {SamplingKind(False, False)}}


def kinds(decoder: GraphedDecoder) -> set[SamplingKind]:
    return {kind for graph in decoder._graphs.values() for kind in graph.choices}


def test_a_step_with_adjusted_rows_is_launched_until_none_is_left():
    decoder = captured()
    runner = runner_on(decoder)
    entered, *steps = STORIES["in company of adjusted rows"]
    found_by(runner, [entered, *steps[:2]])
    assert kinds(decoder) == set(), "row 2 is penalized, and row 3 may not end yet"
    runner.step(steps[2], no_mask)
    assert kinds(decoder) == {SamplingKind(False, False)}
