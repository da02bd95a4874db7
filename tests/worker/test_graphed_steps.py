"""Steps of plain rows on captured graphs bring what a runner without them brings, and only those are taken."""

from builders import interpreted  # isort: skip  before anything that imports triton

from collections.abc import Callable

import pytest
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import no_mask, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import ForcedTokens, StepPlan, StepResult, column
from penstock.worker.models.load import Model, load_model
from penstock.worker.steps.runner import Runner

ENTERING = plan(
    0, [(0, 6, [0]), (1, 4, [1])], new=[new(0, range(5, 11)), new(1, range(20, 24), temperature=1.0, top_p=0.8)]
)
DECODING = [plan(number, [(1, 1, []), (0, 1, [])]) for number in (1, 2, 3)]
# What goes another way: (what enters beside a plain row, the plan behind that).
OTHERS = {
    "a row that asks for log-probabilities": (new(1, range(20, 24), logprobs=2), DECODING[0]),
    "a row whose logits are changed": (new(1, range(20, 24), repetition_penalty=1.3), DECODING[0]),
    "a row that leaves": (new(1, range(20, 24)), plan(1, [(0, 1, [])], freed=column([1]))),
    "forced tokens": (new(1, range(20, 24)), plan(1, [(1, 2, []), (0, 1, [])], forced=[ForcedTokens(1, column([9]))])),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=1)
    with interpreted.interpretation():
        return load_model(folder)


def counting(runner: Runner) -> list[int]:
    """The steps that are taken, once they are."""
    taken: list[int] = []
    launch = runner.fast_decode.launch

    def counted(each: StepPlan) -> Callable[[], StepResult] | None:
        found = launch(each)
        if found is not None:
            taken.append(each.step)
        return found

    runner.fast_decode.launch = counted
    return taken


def answers(runner: Runner, plans: list[StepPlan]) -> list[list[list[int]]]:
    return [sampled(runner.step(each, no_mask)) for each in plans]


def test_plain_rows_get_the_same_tokens_in_the_shorter_way(model):
    short, long = slotted_runner(model), slotted_runner(model)
    taken, long.fast_decode = counting(short), None
    assert answers(short, [ENTERING, *DECODING]) == answers(long, [ENTERING, *DECODING])
    assert taken == [1, 2, 3]


@pytest.mark.parametrize("what", OTHERS)
def test_other_steps_go_the_long_way(model, what):
    entering, following = OTHERS[what]
    runner = slotted_runner(model)
    taken = counting(runner)
    found = answers(runner, [plan(0, [(0, 6, [0]), (1, 4, [1])], new=[new(0, range(5, 11)), entering]), following])
    assert not taken
    assert [len(tokens) for tokens in found[1]] == [1] * len(found[1])


def test_a_row_whose_logits_are_broken_fails_alone(model, monkeypatch):
    monkeypatch.setattr("penstock.worker.backends.triton.fast_decode.point", lambda name: "nan")
    runner = slotted_runner(model)
    taken = counting(runner)
    runner.step(ENTERING, no_mask)
    result = runner.step(DECODING[0], no_mask)
    assert taken == [1]
    assert [len(tokens) for tokens in sampled(result)] == [0, 1]
    assert [(failed.row, "finite" in failed.message) for failed in result.failed] == [(0, True)]
