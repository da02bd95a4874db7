"""Steps that a GPU captures: all before the first request, the largest first. A step without a graph of its own takes
a larger one, and captured steps of plain rows bring the tokens of launched ones.

In Triton's interpreter: where there is no GPU a capture is called again, so its inputs and its spare rows are real.
"""

from builders import interpreted  # isort: skip  before anything that imports triton

import weakref
from itertools import product
from types import SimpleNamespace

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import engine_of, fast_steps, no_mask, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.kernels.paged import DeviceRows, PromptRows
from penstock.protocol.messages import ForcedTokens, StepPlan
from penstock.protocol.wire import column
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.backends.triton import graph_capture
from penstock.worker.backends.triton.device_batch import DeviceBatch
from penstock.worker.backends.triton.graph_capture import GraphCapture
from penstock.worker.backends.triton.graph_keys import _PROMPT_TOKENS as PROMPT_TOKENS
from penstock.worker.backends.triton.graph_keys import (
    all_contexts,
    all_keys,
    all_sizes,
    fitting_context,
    fitting_drafted,
    fitting_prompts,
    fitting_size,
    prompt_context,
)
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.start.start import Start
from penstock.worker.steps.slots import SlotTable
from penstock.worker.steps.step_rows import StepRows

ENTERING = plan(
    0, [(0, 6, [0]), (1, 4, [1])], new=[new(0, range(5, 11)), new(1, range(20, 24), temperature=1.0, top_p=0.8)]
)
DECODING = [plan(number, [(slot, 1, []) for slot in slots]) for number, slots in ((1, (1, 0)), (2, (0,)))]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    """As small as may be: an interpreter takes long for every tile of every product."""
    sizes = dict(hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, vocab_size=40)
    folder = tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=1, **sizes)
    with interpreted.interpretation():
        return load_model(folder)


def answers(runner: Runner, plans: list[StepPlan]) -> list[list[list[int]]]:
    return [sampled(runner.step(each, no_mask)) for each in plans]


def launched(model: Model) -> Runner:
    """A runner whose steps are taken the long way."""
    runner = slotted_runner(model, num_slots=3)
    runner.fast_decode = None
    return runner


# --- which sizes and contexts there are -------------------------------------------------------------------------------


def test_a_graph_has_few_spare_rows_and_is_of_a_size_that_was_asked_for_where_one_holds_the_step():
    for rows in range(1, 257):
        size = fitting_size(rows, 256)
        assert rows <= size <= 256
        assert size - rows <= max(3, rows // 4), (rows, size)
    assert fitting_size(250, 250) == 250
    assert [fitting_size(rows, 64, (8, 32)) for rows in (1, 8, 9, 32, 33)] == [8, 8, 32, 32, 40]
    contexts = [fitting_context(*given) for given in ((1, 300), (1, 9000), (1025, 9000), (5000, 9000))]
    assert contexts == [300, 1024, 4096, 9000]


def test_all_sizes_and_contexts_are_those_that_steps_take():
    for most, given in ((1, ()), (40, ()), (256, ()), (64, (8, 32)), (8, (16,))):
        assert all_sizes(most, given) == sorted({fitting_size(rows, most, given) for rows in range(1, most + 1)})[::-1]
    for longest in (1, 300, 1024, 1025, 9000, 131_072):
        asked = [context for context in (1, 1024, 1025, 4096, 4097, longest) if context <= longest]
        needed = {fitting_context(context, longest) for context in asked}
        assert needed <= set(all_contexts(longest)) and all_contexts(longest)[0] == longest


def test_steps_with_drafts_are_captured_for_a_few_rows_of_a_few_tokens():
    assert [fitting_drafted(*given) for given in ((1, 2, 40), (3, 3, 40), (8, 8, 40), (5, 5, 6))] == [
        (1, 2), (4, 4), (8, 8), (6, 8),
    ]  # fmt: skip
    assert fitting_drafted(9, 2, 40) is fitting_drafted(1, 9, 40) is None
    for most in (1, 3, 8, 40):
        keys = all_keys(most, 1024, (False,), with_drafts=True)
        plain = all_keys(most, 1024, (False,))
        assert keys[: len(plain)] == plain, "those that every tree needs come first"
        of_steps = {fitting_drafted(*given, most) for given in product(range(1, min(most, 8) + 1), range(2, 9))}
        assert {key.shape for key in keys[len(plain) :]} == of_steps


# --- what is captured before the first request ------------------------------------------------------------------------


def captured(model: Model, monkeypatch, most_bytes: int, a_graph: int = 10):
    """A runner of three slots, and what was told; each graph takes so many bytes, the largest ten times as many."""
    runner = slotted_runner(model, num_slots=3)
    told: list[tuple[int, int]] = []
    taken = iter([10 * a_graph + number * a_graph for number in range(100)])
    monkeypatch.setattr(graph_capture.MemoryMeter, "bytes", property(lambda self: next(taken)))
    capture = GraphCapture(model.forward_pass, model.sample, runner.table, runner.memory, Parallel())
    capture.capture_all(most_bytes, lambda *progress: told.append(progress))
    return runner, told


def test_they_are_captured_the_largest_first_and_told_one_by_one(model, monkeypatch):
    runner, told = captured(model, monkeypatch, 1000)
    assert [key.rows for key in model.forward_pass._graphs] == [3, 2, 1]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert all(len(graph.choices) == 4 for graph in model.forward_pass._graphs.values())
    before = dict(model.forward_pass._graphs)
    answers(runner, [ENTERING, DECODING[1]])
    assert model.forward_pass._graphs == before, "nothing is captured while requests are served"


def test_beyond_the_memory_that_was_planned_steps_take_a_larger_graph(model, monkeypatch):
    runner, _ = captured(model, monkeypatch, 105)
    assert [key.rows for key in model.forward_pass._graphs] == [3, 2]
    taken = fast_steps(runner)
    found = answers(runner, [ENTERING, *DECODING])
    assert taken == [1, 2], "plain rows go the shorter way"
    assert [key.rows for key in model.forward_pass._graphs] == [3, 2]
    model.forward_pass.forget()
    assert found == answers(launched(model), [ENTERING, *DECODING])


def test_all_ranks_stop_where_one_has_no_room(model):
    class TwoRanks(Parallel):
        def exchange(self, numbers: list[int]) -> list[list[int]]:
            return [numbers, [len(model.forward_pass._graphs) == 2]]

    runner = slotted_runner(model, num_slots=3)
    GraphCapture(model.forward_pass, model.sample, runner.table, runner.memory, TwoRanks(0, 2)).capture_all(
        1 << 30, lambda *progress: None
    )
    assert [key.rows for key in model.forward_pass._graphs] == [3, 2]


def test_ranks_leave_one_another_when_no_captured_step_holds_their_group(model, monkeypatch):
    captured(model, monkeypatch, 1000)
    graphs = [weakref.ref(graph) for graph in model.forward_pass._graphs.values()]
    held = []

    class Leaving(Parallel):
        def leave(self) -> None:
            held.extend(graph() for graph in graphs)

    start = Start.__new__(Start)
    start.model, start.memory, start.ranks, start.disk = model, SimpleNamespace(close=lambda: None), Leaving(), None
    start.close()
    assert held == [None] * 3


def test_what_all_will_take_is_reckoned_from_the_largest_and_some_after_it(model, monkeypatch):
    runner = slotted_runner(model, num_slots=8)
    sizes = [100, 148]  # after the largest, and after four more
    monkeypatch.setattr(graph_capture.MemoryMeter, "bytes", property(lambda self: sizes.pop(0)))
    number = len(model.forward_pass.keys(runner.table))
    assert GraphCapture(
        model.forward_pass, model.sample, runner.table, runner.memory, Parallel()
    ).estimate_bytes() == 100 + 12 * (number - 1)
    assert not model.forward_pass._graphs and torch.is_tensor(runner.table.histories)


# --- steps with prompts ---------------------------------------------------------------------------------------------


def test_every_step_with_prompts_has_a_graph_up_to_as_many_tokens_as_are_captured():
    for most, longest, most_tokens in product((1, 3, 4, 5, 40, 256), (300, 16_384), (0, 10, 16, 600, 8192)):
        found = {key for key in all_keys(most, longest, (False,), most_tokens=most_tokens) if key.has_prompts}
        needed = set()
        for rows, tokens in product((1, 2, 4, 5, 17, most), (1, 16, 17, 65, 500, 4096, 4097, 8192)):
            shape = fitting_prompts(min(rows, most), tokens, most, most_tokens)
            assert (shape is None) == (tokens > max((size for size in PROMPT_TOKENS if size <= most_tokens), default=0))
            if shape is not None:
                assert min(rows, most) <= shape[0] <= most and tokens <= shape[1] <= max(16, 2 * tokens)
                contexts = [context for context in (1024, 1025, longest) if context <= longest]
                needed |= {(*shape, prompt_context(shape[0], context, longest)) for context in contexts}
        assert needed <= {key[:3] for key in found}
        assert not any(key.holds(other) for key in found for other in all_keys(most, longest, (False,)))


# Prompts alone, one beside an answer and cut in two, and their rows' answers.
WITH_PROMPTS = [
    ENTERING,
    plan(1, [(0, 1, []), (2, 12, [2]), (1, 1, [])], new=[new(2, range(7, 27))]),
    plan(2, [(2, 8, [3]), (1, 1, [])]),
    plan(3, [(1, 1, []), (2, 1, []), (0, 1, [])]),
]


def test_steps_with_prompts_are_replayed_and_answer_as_launched_ones(model, monkeypatch):
    expected = answers(launched(model), WITH_PROMPTS)
    model.forward_pass.forget()
    monkeypatch.setattr(model.forward_pass, "most_tokens", 16)
    runner, told = captured(model, monkeypatch, 1000)
    assert told[-1] == (4, 4) and next(key for key in model.forward_pass._graphs if key.has_prompts).tokens == 16
    replayed = []
    for key, graph in model.forward_pass._graphs.items():
        monkeypatch.setattr(graph, "replay", lambda key=key, replay=graph.replay: replayed.append(key) or replay())
    assert answers(runner, WITH_PROMPTS) == expected
    assert [(key.rows, key.num_tokens) for key in replayed] == [(3, 16), (3, 16), (3, 16), (3, 3)]
    model.forward_pass.forget()


@pytest.mark.parametrize("family", ["lfm2", pytest.param("qwen3_5_text", marks=pytest.mark.long)])
def test_steps_of_layers_that_keep_states_are_replayed_and_answer_as_launched_ones(tmp_path, family, monkeypatch):
    shape = {"lfm2": {"num_hidden_layers": 2, "full_attn_idxs": [1], "layer_types": None}}.get(family, {})
    asked = [prompt(number, range(5, 14 + 9 * number), max_tokens=2 + number) for number in range(2)]
    with interpreted.interpretation():
        model = load_model(tiny_model(tmp_path, family, vocab_size=60, **shape))
    limits = {"max_num_batched_tokens": 13, "num_slots": 3, "num_blocks": 12}
    expected = engine_of(model, **limits).run(*asked)
    model.forward_pass.forget()
    monkeypatch.setattr(model.forward_pass, "most_tokens", 16)
    engine = engine_of(model, **limits)
    GraphCapture(model.forward_pass, model.sample, engine.runner.table, engine.runner.memory, Parallel()).capture_all(
        1 << 30, lambda *progress: None
    )
    taken = fast_steps(engine.runner)
    monkeypatch.setattr(DeviceBatch, "inputs", lambda *given: pytest.fail("a step was launched"))
    assert engine.run(*asked) == expected
    assert taken


# --- steps of plain rows ----------------------------------------------------------------------------------------------


# The entry that comes next to a plain row, and the plan behind that.
OTHERS = {
    "a row that asks for log-probabilities": (new(1, range(20, 24), logprobs=2), DECODING[0]),
    "a row whose logits are changed": (new(1, range(20, 24), repetition_penalty=1.3), DECODING[0]),
    "a row that leaves": (new(1, range(20, 24)), plan(1, [(0, 1, [])], freed=column([1]))),
    "forced tokens": (new(1, range(20, 24)), plan(1, [(1, 2, []), (0, 1, [])], forced=[ForcedTokens(1, column([9]))])),
}


@for_each("what", OTHERS)
def test_other_steps_go_the_long_way(model, what):
    entering, following = OTHERS[what]
    runner = slotted_runner(model)
    taken = fast_steps(runner)
    found = answers(runner, [plan(0, [(0, 6, [0]), (1, 4, [1])], new=[new(0, range(5, 11)), entering]), following])
    assert not taken
    assert [len(tokens) for tokens in found[1]] == [1] * len(found[1])


def test_a_row_whose_logits_are_broken_fails_alone(model, monkeypatch):
    monkeypatch.setattr("penstock.worker.backends.triton.fast_decode.point", lambda name: "nan")
    runner = slotted_runner(model)
    taken = fast_steps(runner)
    runner.step(ENTERING, no_mask)
    result = runner.step(DECODING[0], no_mask)
    assert taken == [1]
    assert [len(tokens) for tokens in sampled(result)] == [0, 1]
    assert [(failed.row, "finite" in failed.message) for failed in result.failed] == [(0, True)]


# --- what the host knows of a step's rows goes along with them --------------------------------------------------------


@for_each(
    "counts, starts, first, number",
    [([1, 5, 1, 3], [40, 0, 7, 20], 1, 2), ([2, 1], [3, 4], 0, 1), ([1, 1, 1], [3, 4, 5], 3, 0)],
)
def test_prompts_are_the_rows_of_several_tokens(counts, starts, first, number):
    table = SlotTable(len(counts), 100, [8], 16, 50, TensorDevice(torch.device("cpu")))
    num_tokens, start, nowhere = numpy.array(counts), numpy.array(starts), numpy.zeros(len(counts), bool)
    rows = StepRows(numpy.arange(len(counts)), num_tokens, start, start + num_tokens, nowhere, nowhere, 0 * num_tokens)
    assert DeviceBatch(table, rows, memory=None)._prompts() == PromptRows(first, number)


def test_rows_before_the_first_prompt_can_be_left_out():
    starts = torch.tensor([0, 1, 2, 7], dtype=torch.int32)
    rows = DeviceRows(starts, torch.tensor([9, 8, 5]), torch.arange(6).view(3, 2), torch.arange(7), 5, 9)
    rows.prompts = PromptRows(2, 1)
    left = rows.from_first_prompt()
    assert (left.query_starts.tolist(), left.context_lengths.tolist()) == ([2, 7], [5])
    assert left.block_tables.tolist() == [[4, 5]] and not left.may_have_answers and rows.may_have_answers
    assert left.from_first_prompt() is left
