"""How sequences end, and that each ends once; what happens when blocks run out."""

import pytest
from builders.cases import for_each
from builders.engine_harness import Harness, answer, prompt

from penstock.protocol.wire import column

ASKED = prompt(1, [3, 1, 4, 1, 5], max_tokens=20)
FREE = answer(ASKED, 0, 128)[0]


def asked(request_id: int = 1, **params):
    return prompt(request_id, [3, 1, 4, 1, 5], **{"max_tokens": 20, **params})


@for_each("options, params, length", [
    ({}, {}, 20), ({"max_model_len": 12}, {}, 7), ({}, {"max_tokens": None, "max_length": 9}, 4),
])  # fmt: skip
def test_max_tokens_the_context_or_max_length_of_prompt_and_output_end_it_with_length(options, params, length):
    harness = Harness(**options).add(asked(**params)).run()
    assert (harness.tokens(1), harness.ended(1).finish_reason) == (FREE[:length], "length")


@for_each("steps_in_flight", [1, 2, 3])
@for_each("is_eos", [False, True])
def test_a_stop_token_is_the_last_token_and_the_reason_unless_it_is_eos(steps_in_flight, is_eos):
    harness = Harness().add(asked(stop_token_ids=[FREE[6]], eos_token_id=[FREE[6]] * is_eos)).run(steps_in_flight)
    assert harness.tokens(1) == FREE[: FREE.index(FREE[6]) + 1]
    assert (harness.ended(1).finish_reason, harness.ended(1).stop_reason) == ("stop", None if is_eos else FREE[6])


@for_each("least", [{"min_tokens": 10}, {"min_length": 15}])
def test_no_token_ends_it_before_its_least_length(least):
    harness = Harness().add(asked(eos_token_id=list(range(0, 512, 2)), **least)).run()
    assert len(harness.tokens(1)) >= 10


def test_a_worker_that_ends_it_too_early_is_not_believed_nor_a_result_out_of_order():
    harness = Harness().add(asked(min_tokens=2, eos_token_id=[7]))
    for expected in (None, "stop"):
        harness.plan()
        harness.results[0].sampled = column([7])
        harness.finish()
        assert (harness.ended(1) and harness.ended(1).finish_reason) == expected
    harness = Harness().add(ASKED)
    harness.plan()
    harness.results[0].step = 7
    with pytest.raises(RuntimeError, match="answered step 7, and the step in flight is 0"):
        harness.finish()


def test_no_step_is_planned_for_a_sequence_whose_last_token_is_in_flight_and_its_slot_is_used_again():
    harness = Harness(max_num_seqs=2).add(*(asked(number, max_tokens=1) for number in range(6)))
    for _ in range(3):
        assert len(harness.rows(harness.plan())) == 2
    assert harness.plan() is None
    assert harness.scheduler.stats().free_blocks == 64, "nor does it hold blocks any longer"
    harness.run()
    assert [harness.tokens(number) for number in range(6)] == [FREE[:1]] * 6


def test_an_aborted_sequence_ends_with_499_and_keeps_what_it_got():
    harness = Harness(max_num_seqs=1).add(ASKED, asked(2))
    for _ in range(3):
        harness.plan()
    harness.finish()
    harness.abort(1 * 128, 2 * 128, 12345)
    ended = harness.ended(1)
    assert (ended.finish_reason, ended.error_code, harness.tokens(1)) == ("abort", 499, FREE[:1])
    assert (harness.ended(2).finish_reason, harness.heard[2 * 128].opened.inference_start_time) == ("abort", None)
    harness.run()
    assert harness.tokens(1) == FREE[:1], "surplus results are dropped"
    assert harness.scheduler.stats().free_blocks == 64
    harness.abort(1 * 128)  # has no second end


# --- preemption ------------------------------------------------------------------------------------------------------


def grown(harness: Harness, number: int, length: int = 6, **params) -> None:
    harness.add(prompt(number, range(20 * number, 20 * number + length), **{"max_tokens": 30, **params}))


def test_the_youngest_of_the_lowest_priority_gives_way():
    harness = Harness(num_blocks=14)
    grown(harness, 1, priority=1)
    grown(harness, 2, priority=5)
    grown(harness, 3, priority=5)
    grown(harness, 4, priority=1)
    while not harness.scheduler.counters.preemptions:
        harness.step()
    (waiting,) = [each for each in harness.scheduler.sequences.values() if each.is_waiting]
    assert waiting.request.prompt.request_id == 3


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


def test_a_sequence_that_alone_outgrows_the_pool_ends_with_429_and_keeps_what_it_got():
    harness = Harness(num_blocks=5)
    asked = prompt(1, range(6), max_tokens=100)
    harness.add(asked).run()
    ended = harness.ended(1)
    assert (ended.finish_reason, ended.error_code) == ("error", 429)
    assert "21 tokens and fills the whole KV cache (5 blocks of 4)" in ended.error_msg
    assert harness.tokens(1) == answer(asked, 0, 128)[0][:15]


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


def test_a_prompt_preempted_halfway_gives_each_position_once():
    harness = Harness(num_blocks=12, max_num_batched_tokens=4)
    grown(harness, 1)
    grown(harness, 2, length=38, prompt_logprobs=0, max_tokens=2)
    harness.run()
    assert harness.heard[2 * 128].preemptions > 0
    assert harness.heard[2 * 128].prompt_positions == 37
