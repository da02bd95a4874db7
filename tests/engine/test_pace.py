"""Long prompts beside streamed answers: how many of their tokens a step takes, and who need not wait for them."""

from collections.abc import Callable

import pytest
from builders.engine_harness import Harness, prompt
from msgspec.structs import replace

from penstock.protocol.messages import Prompt, StepPlan, sequence_id, values

BUDGET, LONG = 32, 500  # tokens of a step, and of a prompt that takes more than eight


def streamed(request_id: int, **params) -> Prompt:
    return replace(prompt(request_id, [7, 8, request_id], max_tokens=900, **params), is_streamed=True)


def begun(*prompts: Prompt, **options) -> Harness:
    """These answers are being generated."""
    harness = Harness(max_num_batched_tokens=BUDGET, num_blocks=1024, max_model_len=1024, **options)
    harness.add(*prompts)
    for _ in range(4 if prompts else 0):
        harness.plan()
        harness.finish()
    return harness


def prompt_tokens(harness: Harness, plan: StepPlan) -> int:
    """How many tokens it computes beyond one for each answer on its way."""
    step = next(step for step in harness.scheduler.in_flight if step.number == plan.step)
    return sum(values(plan.num_tokens)[step.num_decodes :])


def run_until_begun(harness: Harness, request_id: int, seconds: Callable[[int, int], float]) -> list[int]:
    """Until that request's first token: how many prompt tokens each step had. Steps take `seconds(step, tokens)`."""
    counts: list[int] = []
    while sequence_id(request_id, 0) not in harness.heard or not harness.tokens(request_id):
        assert len(counts) < 900, "the prompt makes no progress"
        while len(harness.results) < 2 and (plan := harness.plan()) is not None:
            counts.append(prompt_tokens(harness, plan))
            harness.results[-1].forward_time = seconds(len(counts), counts[-1])
        harness.finish()
    return counts


@pytest.mark.parametrize("cost", [0.02, 0.1, 0.2])
def test_a_step_beside_a_stream_takes_at_most_twice_as_long_as_without_the_prompt(cost):
    """Or as long as the fewest tokens that still make progress."""

    def seconds(step: int, tokens: int) -> float:
        return 1.0 + cost * tokens

    harness = begun(streamed(1), streamed(2))
    harness.add(prompt(3, range(LONG), max_tokens=1))
    counts = run_until_begun(harness, 3, seconds)
    longest = sorted(seconds(0, count) for count in counts)[-len(counts) // 20]
    assert longest <= max(2.0, 1.0 + 8 * cost)
    assert sum(counts) == LONG


def test_the_share_of_a_prompt_follows_what_its_tokens_take():
    """They take longer the longer the context is, and the answers' own steps do so, too."""

    def seconds(step: int, tokens: int) -> float:
        return 1.0 + step / 100 + tokens * 0.03 * (1 + step / 50)

    harness = begun(streamed(1))
    harness.add(prompt(3, range(LONG), max_tokens=1))
    counts = run_until_begun(harness, 3, seconds)
    beside = [seconds(step, count) / seconds(step, 0) for step, count in enumerate(counts, 1) if count]
    assert sorted(beside)[-len(beside) // 20] <= 2.1
    assert max(counts) > 8, "there is time for more than the fewest"


@pytest.mark.parametrize(
    ("company", "length"),
    [((prompt(1, [5, 6, 7], max_tokens=900),), LONG), ((streamed(1),), 8 * BUDGET), ((), LONG)],
    ids=["nobody reads", "a short prompt", "alone"],
)
def test_other_prompts_take_all_that_a_step_has(company, length):
    harness = begun(*company)
    harness.add(prompt(3, range(length), max_tokens=1))
    counts = run_until_begun(harness, 3, lambda step, tokens: 1.0 + tokens)
    assert counts[0] == BUDGET - len(company)


def test_short_prompts_need_not_wait_for_a_long_one_that_is_held_back():
    harness = begun(streamed(1))
    harness.add(prompt(3, range(LONG), max_tokens=1), prompt(4, range(LONG, LONG + 9), max_tokens=1))
    run_until_begun(harness, 4, lambda step, tokens: 1.0 + tokens)
    assert sequence_id(3, 0) not in harness.heard or not harness.tokens(3)


def test_a_threshold_says_what_is_long():
    harness = begun(streamed(1), long_prefill_token_threshold=40)
    harness.add(prompt(3, range(50), max_tokens=1))
    assert run_until_begun(harness, 3, lambda step, tokens: 1.0 + tokens)[0] == 0


def test_steps_that_take_no_time_leave_no_prompt_behind():
    harness = begun(streamed(1))
    harness.add(prompt(3, range(LONG), max_tokens=1))
    assert sum(run_until_begun(harness, 3, lambda step, tokens: 0.0)) == LONG
