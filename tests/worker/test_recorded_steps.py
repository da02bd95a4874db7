"""Steps that only decode are taken natively, and bring what a runner without that brings, to the bit."""

import pytest
from builders.backends import load_on
from builders.cases import for_each
from builders.hand_planned import new, plan, sampled
from builders.runner_harness import TinyEngine, fast_steps, no_mask, prompt, slotted_runner
from builders.tiny_model import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import StepPlan, StepResult
from penstock.protocol.wire import column
from penstock.worker.plan_error import PlanError
from penstock.worker.runner import Runner
from penstock.worker.start.model import Model

PLAIN = [
    {}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 20, "top_p": 0.9}, {"temperature": 1.2, "top_p": 0.7},
    {"temperature": 0.7, "min_p": 0.05},
]  # fmt: skip
# What a slot may ask for beside its next token, or of its logits.
MORE = [
    {"logprobs": 2}, {"repetition_penalty": 1.3}, {"logit_bias": {9: 2.0}}, {"no_repeat_ngram_size": 2},
    {"min_tokens": 6, "eos_token_id": [3]}, {"early_stop": {"window_size": 2, "threshold": 0.5}},
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    return load_on("native", tiny_model(tmp_path_factory.mktemp("model"), "qwen3"), quantization="int8")


def without(runner: Runner) -> Runner:
    runner.fast_decode = None
    return runner


def prompts(kinds: list[dict]):
    return [
        prompt(number, [(7 * number + 3 * place) % 250 + 4 for place in range(1 + 5 * number)], seed=number,
               max_tokens=12 + number, **params)
        for number, params in enumerate(kinds)
    ]  # fmt: skip


def told(result: StepResult) -> tuple:
    return result.step, result.num_sampled, result.sampled, result.failed


def test_answers_are_those_of_a_runner_that_takes_every_step_itself(model):
    expected = TinyEngine(without(slotted_runner(model))).run(*prompts(PLAIN))
    runner = slotted_runner(model)
    taken = fast_steps(runner)
    assert TinyEngine(runner).run(*prompts(PLAIN)) == expected
    assert len(taken) > 10
    alone = [TinyEngine(slotted_runner(model)).run(each)[0] for each in prompts(PLAIN)]
    assert alone == expected


@for_each("family, given", [("gpt_oss", {"num_hidden_layers": 4, "sliding_window": 20}), ("qwen3_5_text", {})])
def test_steps_of_layers_with_windows_or_states_are_taken_too(tmp_path, family, given):
    model, found = load_on("native", tiny_model(tmp_path, family, **given)), []
    for runner in (slotted_runner(model, gives_back=True), without(slotted_runner(model, gives_back=False))):
        taken = fast_steps(runner) if runner.fast_decode else []
        answers = TinyEngine(runner, checkpoint_every=16).run(*prompts(PLAIN))  # states change amid answers, too
        found.append((answers, len(taken) > 10))
    assert found == [(found[0][0], True), (found[0][0], False)]


# What a step of an answer writes its states to; 3 tokens are computed before it.
BROKEN_STATES = {
    "a state that isn't there": GroupChanges(column([64]), column([0, 1]), column([3])),
    "one below the first": GroupChanges(column([-1]), column([0, 1]), column([3])),
    "one behind the next token": GroupChanges(column([3]), column([0, 1]), column([5])),
    "one without a position": GroupChanges(column([3]), column([0, 1]), b""),
}


def test_a_plan_whose_states_break_a_rule_is_refused_by_both_and_the_next_ones_go_on(tmp_path):
    model = load_on("native", tiny_model(tmp_path, "qwen3_5_text"))
    block, nothing = GroupChanges(column([0]), column([0, 1])), GroupChanges(b"", column([0, 0]))
    kept = GroupChanges(column([0, 9]), column([0, 2]), column([0, 3]))  # the answer goes on in another state
    for broken, states in BROKEN_STATES.items():
        errors, following = [], []
        for runner in (slotted_runner(model), without(slotted_runner(model))):
            runner.step(StepPlan(0, column([0]), column([3]), [block, kept], new=[new(0, [5, 6, 7])]), no_mask)
            with pytest.raises(PlanError) as raised:
                runner.step(StepPlan(1, column([0]), column([1]), [nothing, states]), no_mask)
            errors.append(str(raised.value))
            plans = [StepPlan(step, column([0]), column([1]), [nothing, nothing]) for step in (2, 3, 4)]
            following.append([told(runner.step(each, no_mask)) for each in plans])
        assert errors[0] == errors[1] and following[0] == following[1], broken


@for_each("more", MORE)
def test_one_row_that_asks_for_more_takes_the_step_to_the_runner(model, more):
    asked = prompts([{}, {**more, "temperature": 0.9}])
    runner = slotted_runner(model)
    taken, engine = fast_steps(runner), TinyEngine(runner)
    assert engine.run(*asked) == TinyEngine(without(slotted_runner(model))).run(*asked)
    rows = {plan.step: len(plan.slots) // 4 for plan in engine.plans}
    assert all(rows[step] == 1 for step in taken), "a step of both rows was taken"


def block_for(runner: Runner, slot: int) -> list[int]:
    table, blocks = runner.table, int(runner.table.groups[0].num_table[slot])
    is_full = table.num_computed[slot] == blocks * table.block_size
    return [10 * slot + blocks] if is_full else []


# For each step the slots in it, and how many tokens each computes.
SLOTS = st.lists(st.tuples(st.integers(0, 3), st.just(1)), min_size=1, max_size=4, unique_by=lambda row: row[0])
COURSES = st.lists(SLOTS, min_size=1, max_size=12)


@given(course=COURSES, block_size=st.sampled_from([16, 32]), kinds=st.permutations(PLAIN))
@settings(max_examples=15)
def test_counts_tables_and_histories_stand_as_the_runner_leaves_them(model, course, block_size, kinds):
    def run(runner: Runner) -> list[tuple]:
        entering = [new(slot, list(range(3, 14 + slot)), **kinds[slot]) for slot in range(4)]
        rows = [(slot, 11 + slot, [10 * slot]) for slot in range(4)]
        runner.step(plan(0, rows, new=entering), no_mask)
        steps = []
        for number, rows in enumerate(course, 1):
            grown = [(slot, count, block_for(runner, slot)) for slot, count in rows]
            steps.append(told(runner.step(plan(number, grown), no_mask)))
        return steps

    runners = [slotted_runner(model, block_size=block_size), without(slotted_runner(model, block_size=block_size))]
    taken = fast_steps(runners[0])
    assert run(runners[0]) == run(runners[1])
    assert taken == list(range(1, len(course) + 1))
    tables = [runner.table for runner in runners]
    for name in ("num_tokens", "num_computed", "histories"):
        assert (getattr(tables[0], name) == getattr(tables[1], name)).all(), name
    for name in ("num_table", "tables"):
        assert (getattr(tables[0].groups[0], name) == getattr(tables[1].groups[0], name)).all(), name


def test_a_step_whose_plan_moves_blocks_is_taken_too(model):
    runner = slotted_runner(model, num_cells=2)
    taken = fast_steps(runner)
    runner.step(plan(0, [(0, 11, [0])], new=[new(0, list(range(3, 14)))]), no_mask)
    runner.step(plan(1, [(0, 1, [])], saves=column([0, 1]), loads=column([1, 9])), no_mask)
    assert taken == [1]
    assert all((part[:, 9, :, :11] == part[:, 0, :, :11]).all() for part in runner.memory.parts[:1])


BROKEN = {
    "a free slot": plan(1, [(2, 1, [])]),
    "a slot beyond the table": plan(1, [(99, 1, [])]),
    "a slot below the table": plan(1, [(-1, 1, [])]),
    "a slot twice": plan(1, [(0, 1, []), (0, 1, [])]),
    "a block beyond the pool": plan(1, [(0, 1, [64])]),
    "no tokens": plan(1, [(0, 0, [])]),
    "more tokens than are known": plan(1, [(0, 2, [])]),
    "columns of different lengths": StepPlan(1, column([0, 1]), column([1]), [GroupChanges(b"", column([0, 0, 0]))]),
    "offsets that go back": StepPlan(1, column([0, 1]), column([1, 1]), [GroupChanges(column([7]), column([0, 5, 1]))]),
    "a context beyond its blocks": plan(1, [(1, 1, [])]),
}


@for_each("broken", BROKEN)
def test_a_plan_that_breaks_a_rule_is_refused_by_both_and_the_next_one_goes_on(model, broken):
    runners = [slotted_runner(model), without(slotted_runner(model))]
    entering = [new(0, [5, 6, 7]), new(1, list(range(4, 20)))]
    errors, following = [], []
    for runner in runners:
        runner.step(plan(0, [(0, 3, [0]), (1, 16, [1])], new=entering), no_mask)
        with pytest.raises((PlanError, ValueError, IndexError)) as raised:
            runner.step(BROKEN[broken], no_mask)
        errors.append(str(raised.value))
        following.append(told(runner.step(plan(2, [(0, 1, [])]), no_mask)))
    assert errors[0] == errors[1]
    assert following[0] == following[1]


def test_a_row_whose_logits_are_broken_fails_alone(model, monkeypatch):
    monkeypatch.setattr("penstock.worker.backends.native.fast_decode.is_planted", lambda name: True)
    monkeypatch.setattr("penstock.worker.backends.native.fast_decode.point", lambda name: "nan")
    runner = slotted_runner(model)
    taken = fast_steps(runner)
    rows = [(0, 1, []), (1, 1, [])]
    runner.step(plan(0, [(0, 2, [0]), (1, 2, [1])], new=[new(0, [5, 6]), new(1, [7, 8])]), no_mask)
    result = runner.step(plan(1, rows), no_mask)
    assert taken == [1]
    assert [len(tokens) for tokens in sampled(result)] == [0, 1]
    assert [(failed.row, "finite" in failed.message) for failed in result.failed] == [(0, True)]
