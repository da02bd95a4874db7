"""Steps over several groups of layers: blocks that were given back serve others, and answers are those of one group."""

import pytest
from builders.group_planner import GroupPlanner
from builders.runner_harness import fast_steps, slotted_runner
from builders.tiny_model import tiny_model

from penstock.worker.models.load import Model, load_model

PROMPTS = [
    [(7 * number + place * place) % 97 + 1 for place in range(length)] for number, length in enumerate((150, 33, 70))
]
FAMILIES = {
    "alternating": ("gpt_oss", {"num_hidden_layers": 4, "sliding_window": 20}),
    "later layers": ("qwen2", {"use_sliding_window": True, "max_window_layers": 2, "sliding_window": 40}),
    "layers that read others' keys": ("gemma4_text", {}),
    "every layer": ("mistral", {"sliding_window": 24}),
}


@pytest.fixture(scope="module", params=list(FAMILIES))
def model(request, tmp_path_factory) -> Model:
    family, options = FAMILIES[request.param]
    return load_model(tiny_model(tmp_path_factory.mktemp("model"), family, **options))


def answers(runner, chunk: int, count: int = 40) -> tuple[list[list[int]], list[int]]:
    """Of all prompts together, so many tokens; and the most blocks that sequences hold in each group."""
    planner, most = GroupPlanner(runner), [0] * len(runner.table.groups)
    entering = [planner.add(slot, tokens) for slot, tokens in enumerate(PROMPTS)]
    while any(len(each.answer) < count for each in planner.sequences.values()):
        rows = [
            (slot, min(chunk, len(each.tokens) - each.num_computed))
            for slot, each in planner.sequences.items()
            if len(each.answer) < count
        ]
        planner.step(rows, new=entering)
        entering = []
        most = [max(before, planner.held(group)) for group, before in enumerate(most)]
    return [each.answer for each in planner.sequences.values()], most


@pytest.mark.parametrize("block_size", [16, pytest.param(32, marks=pytest.mark.long)])
def test_answers_are_those_of_one_group_whatever_the_chunks(model, block_size):
    plain, _ = answers(slotted_runner(model, block_size=block_size, gives_back=False), 200)
    for chunk in (1, 16, 37, 64):
        runner = slotted_runner(model, block_size=block_size, gives_back=True)
        found, most = answers(runner, chunk)
        assert found == plain, chunk
        for held, group in zip(most, runner.table.groups, strict=True):
            if group.window is not None:
                assert held <= len(PROMPTS) * (-(-(group.window + chunk) // block_size) + 1)


def test_steps_of_answers_alone_take_the_fast_path(model):
    runner = slotted_runner(model, gives_back=True)
    taken = fast_steps(runner)
    answers(runner, 200)
    assert taken == list(range(1, 40))


def test_a_fork_goes_on_as_its_parent_does_and_has_its_blocks(model):
    found = []
    for gives_back in (False, True):
        runner = slotted_runner(model, gives_back=gives_back)
        planner = GroupPlanner(runner)
        planner.step([(0, 150)], new=[planner.add(0, PROMPTS[0])])
        for _ in range(5):
            planner.step([(0, 1)])
        planner.step([(0, 1), (1, 1)], forks={1: 0})
        for _ in range(60):
            planner.step([(1, 1), (0, 1)])
        parent, child = planner.sequences[0], planner.sequences[1]
        assert parent.tokens == child.tokens
        found.append(parent.tokens)
    assert found[0] == found[1]
