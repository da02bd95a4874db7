"""Tokens of captured steps, in Triton's interpreter: those of steps that are launched, whatever company rows have.

Where there is no GPU a capture is called again, so what it reads, its sizes and its spare rows are real.
"""

from builders import interpreted  # isort: skip  before anything that imports triton

from pathlib import Path

import numpy
import pytest
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import MaskFrame, StepPlan, column, mask_bytes, values
from penstock.worker.models.graphed import GraphOptions
from penstock.worker.models.graphed_choice import Kind
from penstock.worker.models.load import Model, load_model
from penstock.worker.runner import Runner

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=1)


def on_triton(folder: Path, **options) -> Model:
    with interpreted.interpretation():
        return load_model(folder, graphs=GraphOptions(**options))


def runner_of(model: Model) -> Runner:
    return slotted_runner(model, max_model_len=16, num_slots=SPARE + 1)


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
        masked = values(each.masked).tolist()[::-1]
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
    "a mask, then none": [
        entering(0, {0: GREEDY, 1: DRAWN}),
        decoding(1, [1, 0], masked=column([0])),
        decoding(2, [0, 1]),
    ],
    "all kinds, fewer and fewer": [
        entering(0, dict(enumerate((GREEDY, TOP_P, TOP_K, DRAWN, GREEDY)))),
        decoding(1, [4, 0, 1, 2, 3]),
        decoding(2, [2, 0, 3]),
        decoding(3, [0, 4]),
    ],
    "masks of some, of one, of none": [
        entering(0, dict(enumerate((GREEDY, TOP_P, DRAWN)))),
        decoding(1, [2, 0, 1], masked=column([0, 2])),
        decoding(2, [0, 1, 2], masked=column([0])),
        decoding(3, [0, 1, 2]),
        decoding(4, [0], masked=column([0])),
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
}


FIRST, *OTHERS = STORIES


@pytest.mark.parametrize("story", [FIRST, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)])
def test_tokens_are_the_same_whether_their_choice_is_captured_or_launched(folder, story):
    captured = found_by(runner_of(on_triton(folder, sizes=(SIZE,))), STORIES[story])
    assert captured == found_by(runner_of(on_triton(folder, is_on=False)), STORIES[story])


def kinds(model: Model) -> set[Kind]:
    return {kind for graph in model.runs._graphs.values() for kind in graph.choices}


@pytest.mark.long
def test_a_step_whose_rows_take_their_logits_as_they_are_is_captured_by_what_it_needs(folder):
    model = on_triton(folder, sizes=(SIZE,))
    found = found_by(runner_of(model), STORIES["in company of adjusted rows"][:3])
    assert kinds(model) == set(), "row 2 is penalized, and row 3 may not end yet"
    assert found[-1][0][1][0] in ALLOWED
    found = found_by(runner_of(model), STORIES["masks of some, of one, of none"])
    assert kinds(model) == {Kind(False, True), Kind(False, False), Kind(True, True)}
    assert all(token in ALLOWED for (token,) in (found[1][0][0], found[1][0][2], found[2][0][0], found[4][0][0]))
