"""Which steps are captured before the first request, in which order, and what a step without one of its own takes."""

from builders import interpreted  # isort: skip  before anything that imports triton

import pytest
import torch
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import no_mask, slotted_runner
from builders.tiny_model import tiny_model

from penstock.worker.backends.triton import graph_capture
from penstock.worker.backends.triton.decoder import all_contexts, all_sizes, fitting_context, fitting_size
from penstock.worker.backends.triton.graph_capture import GraphCapture
from penstock.worker.models.load import Model, load_model
from penstock.worker.parallel import Parallel

ENTERING = plan(0, [(0, 6, [0]), (1, 4, [1])], new=[new(0, range(5, 11)), new(1, range(20, 24), temperature=1.0)])
DECODING = [plan(number, [(slot, 1, []) for slot in slots]) for number, slots in ((1, (1, 0)), (2, (0,)), (3, (1,)))]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=1)
    with interpreted.interpretation():
        return load_model(folder)


def captured(model: Model, monkeypatch, most_bytes: int, a_graph: int = 10):
    """A runner of four slots, and what was told; each graph takes so many bytes, the largest ten times as many."""
    runner = slotted_runner(model, num_slots=4)
    told: list[tuple[int, int]] = []
    taken = iter([10 * a_graph + number * a_graph for number in range(100)])
    monkeypatch.setattr(graph_capture.MemoryMeter, "bytes", property(lambda self: next(taken)))
    capture = GraphCapture(model, runner.table, runner.memory, Parallel())
    capture.capture_all(most_bytes, lambda *progress: told.append(progress))
    return runner, told


def test_all_sizes_and_contexts_are_those_that_steps_take():
    for most, given in ((1, ()), (40, ()), (256, ()), (64, (8, 32)), (8, (16,))):
        assert all_sizes(most, given) == sorted({fitting_size(rows, most, given) for rows in range(1, most + 1)})[::-1]
    for longest in (1, 300, 1024, 1025, 9000, 131_072):
        asked = [context for context in (1, 1024, 1025, 4096, 4097, longest) if context <= longest]
        needed = {fitting_context(context, longest) for context in asked}
        assert needed <= set(all_contexts(longest)) and all_contexts(longest)[0] == longest


def test_they_are_captured_the_largest_first_and_told_one_by_one(model, monkeypatch):
    runner, told = captured(model, monkeypatch, 1000)
    assert [key.rows for key in model.forward_pass._graphs] == [4, 3, 2, 1]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(len(graph.choices) == 4 for graph in model.forward_pass._graphs.values())
    before = dict(model.forward_pass._graphs)
    [runner.step(each, no_mask) for each in (ENTERING, *DECODING)]
    assert model.forward_pass._graphs == before, "nothing is captured while requests are served"


@pytest.mark.parametrize("most_bytes, sizes", [(105, [4, 3]), pytest.param(0, [4], marks=pytest.mark.long)])
def test_beyond_the_memory_that_was_planned_steps_take_a_larger_graph(model, monkeypatch, most_bytes, sizes):
    runner, _ = captured(model, monkeypatch, most_bytes)
    assert [key.rows for key in model.forward_pass._graphs] == sizes
    found = [sampled(runner.step(each, no_mask)) for each in (ENTERING, *DECODING)]
    assert [key.rows for key in model.forward_pass._graphs] == sizes
    launched = slotted_runner(model, num_slots=4)
    launched.fast_decode = None
    model.forward_pass.forget()
    assert found == [sampled(launched.step(each, no_mask)) for each in (ENTERING, *DECODING)]


def test_all_ranks_stop_where_one_has_no_room(model, monkeypatch):
    class TwoRanks(Parallel):
        def exchange(self, numbers: list[int]) -> list[list[int]]:
            return [numbers, [len(model.forward_pass._graphs) == 2]]

    runner = slotted_runner(model, num_slots=4)
    GraphCapture(model, runner.table, runner.memory, TwoRanks(0, 2)).capture_all(1 << 30, lambda *progress: None)
    assert [key.rows for key in model.forward_pass._graphs] == [4, 3]


def test_what_all_will_take_is_reckoned_from_the_largest_and_some_after_it(model, monkeypatch):
    runner = slotted_runner(model, num_slots=16)
    sizes = [100, 148]  # after the largest, and after four more
    monkeypatch.setattr(graph_capture.MemoryMeter, "bytes", property(lambda self: sizes.pop(0)))
    number = len(model.forward_pass.keys(runner.table))
    assert GraphCapture(model, runner.table, runner.memory, Parallel()).estimate_bytes() == 100 + 12 * (number - 1)
    assert not model.forward_pass._graphs and torch.is_tensor(runner.table.histories)
