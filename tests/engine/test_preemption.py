"""What happens when blocks run out."""

import pytest
from builders.engine_harness import Harness, answer, prompt


def grown(harness: Harness, number: int, length: int = 6, **params) -> None:
    harness.add(prompt(number, range(20 * number, 20 * number + length), **{"max_tokens": 30, **params}))


@pytest.mark.parametrize("steps_in_flight", [1, 2, 3])
def test_preempted_sequences_answer_as_if_nothing_had_happened(steps_in_flight):
    harness = Harness(num_blocks=14)
    prompts = [prompt(number, range(20 * number, 20 * number + 6), max_tokens=30) for number in range(5)]
    harness.add(*prompts)
    harness.run(steps_in_flight)
    assert harness.scheduler.counters.preemptions > 3
    for asked in prompts:
        assert harness.tokens(asked.request_id) == answer(asked, 0, 128)[0]


def test_the_youngest_of_the_lowest_priority_gives_way():
    harness = Harness(num_blocks=14)
    grown(harness, 1, priority=1)
    grown(harness, 2, priority=5)
    grown(harness, 3, priority=5)
    grown(harness, 4, priority=1)
    while not harness.scheduler.counters.preemptions:
        harness.plan()
        harness.finish()
    (waiting,) = [each for each in harness.scheduler.sequences.values() if each.is_waiting]
    assert waiting.request.prompt.request_id == 3


def test_a_preempted_sequence_comes_back_before_one_that_never_ran():
    harness = Harness(num_blocks=10, max_num_seqs=2)
    for number in range(3):
        grown(harness, number)
    harness.run()
    seeds = [new.seed for plan in harness.plans for new in plan.new]
    assert seeds[:3] == [0, 1, 1]


def test_it_comes_back_only_when_nothing_of_it_is_in_flight():
    harness = Harness(num_blocks=10)
    grown(harness, 1)
    grown(harness, 2)
    while not harness.scheduler.counters.preemptions:
        if len(harness.results) == 2:
            harness.finish()
        harness.plan()
    harness.abort(1 * 128)
    known = len(harness.tokens(2))
    assert harness.plan() is None, "there is room, but a token of it is still to come"
    harness.finish()
    (new,) = harness.plan().new
    assert len(new.token_ids) // 4 == 6 + known + 1
    harness.run()
    assert harness.tokens(2) == answer(prompt(2, range(40, 46), max_tokens=30), 0, 128)[0]


def test_preemptions_and_the_time_of_steps_without_a_token_are_told():
    harness = Harness(num_blocks=14)
    for number in range(4):
        grown(harness, number)
    harness.run()
    told = sum(heard.preemptions for heard in harness.heard.values())
    assert told == harness.scheduler.counters.preemptions > 0


def test_a_sequence_that_alone_outgrows_the_pool_ends_with_429_and_keeps_what_it_got():
    harness = Harness(num_blocks=5)
    asked = prompt(1, range(6), max_tokens=100)
    harness.add(asked)
    harness.run()
    ended = harness.ended(1)
    assert (ended.finish_reason, ended.error_code) == ("error", 429)
    assert "21 tokens and fills the whole KV cache (5 blocks of 4)" in ended.error_msg
    assert harness.tokens(1) == answer(asked, 0, 128)[0][:15]


def test_the_end_of_one_that_outgrew_the_pool_waits_for_what_is_in_flight():
    asked = prompt(1, range(6), max_tokens=100)
    ending = answer(asked, 0, 128)[0][14]
    harness = Harness(num_blocks=5)
    harness.add(prompt(1, range(6), max_tokens=100, stop_token_ids=[ending]))
    harness.run()
    assert harness.ended(1).finish_reason == "stop"


def test_one_that_gave_way_with_a_token_in_flight_that_the_pool_cannot_hold_ends_with_429():
    older, younger = prompt(1, range(4), max_tokens=6), prompt(2, range(20), max_tokens=6)
    harness = Harness(num_blocks=5)
    harness.add(older, younger)  # whose first block they share
    harness.run()
    ended = harness.ended(2)
    assert (ended.finish_reason, ended.error_code) == ("error", 429)
    assert "21 tokens and fills the whole KV cache (5 blocks of 4)" in ended.error_msg
    assert harness.tokens(2) == answer(younger, 0, 128)[0][:1]
    assert harness.heard[2 * 128].preemptions == 1
    assert harness.tokens(1) == answer(older, 0, 128)[0]


def test_the_time_of_all_steps_that_it_was_in_is_told():
    harness = Harness(num_blocks=10, max_num_batched_tokens=16)
    harness.add(prompt(1, range(40), max_tokens=1))
    harness.run()
    assert harness.heard[128].forward_time == 3

    grown(harness, 2)
    grown(harness, 3)
    harness.run()
    assert harness.heard[2 * 128].forward_time == 30
    assert harness.heard[3 * 128].forward_time == harness.num_steps[3 * 128] > 30


def test_a_prompt_preempted_halfway_gives_each_position_once():
    harness = Harness(num_blocks=12, max_num_batched_tokens=4)
    grown(harness, 1)
    grown(harness, 2, length=38, prompt_logprobs=0, max_tokens=2)
    harness.run()
    assert harness.heard[2 * 128].preemptions > 0
    assert harness.heard[2 * 128].prompt_positions == 37


def test_log_probabilities_of_a_prompt_are_given_once_although_it_is_computed_twice():
    harness = Harness(num_blocks=14, max_num_batched_tokens=8)
    for number in range(4):
        grown(harness, number, length=10, prompt_logprobs=0)
    harness.run()
    assert harness.scheduler.counters.preemptions > 0
    assert [heard.prompt_positions for heard in harness.heard.values()] == [9] * 4
