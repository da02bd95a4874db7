"""How sequences end, and that each ends once."""

import pytest
from builders.engine_harness import Harness, answer, prompt

from penstock.protocol.messages import column

ASKED = prompt(1, [3, 1, 4, 1, 5], max_tokens=20)
FREE = answer(ASKED, 0, 128)[0]


def asked(request_id: int = 1, **params):
    return prompt(request_id, [3, 1, 4, 1, 5], **{"max_tokens": 20, **params})


def test_max_tokens_ends_it_with_length():
    harness = Harness()
    harness.add(ASKED)
    harness.run()
    assert (harness.tokens(1), harness.ended(1).finish_reason) == (FREE, "length")


def test_the_context_ends_it_with_length():
    harness = Harness(max_model_len=12)
    harness.add(ASKED)
    harness.run()
    assert (harness.tokens(1), harness.ended(1).finish_reason) == (FREE[:7], "length")


def test_max_length_counts_prompt_and_output():
    harness = Harness()
    harness.add(asked(max_tokens=None, max_length=9))
    harness.run()
    assert harness.tokens(1) == FREE[:4]


@pytest.mark.parametrize("steps_in_flight", [1, 2, 3])
def test_a_stop_token_is_the_last_token_and_the_reason(steps_in_flight):
    harness = Harness()
    harness.add(asked(stop_token_ids=[FREE[6]]))
    harness.run(steps_in_flight)
    assert harness.tokens(1) == FREE[: FREE.index(FREE[6]) + 1]
    assert (harness.ended(1).finish_reason, harness.ended(1).stop_reason) == ("stop", FREE[6])


def test_the_end_of_sequence_token_is_no_reason():
    harness = Harness()
    harness.add(asked(eos_token_id=[FREE[3]], stop_token_ids=[FREE[3]]))
    harness.run()
    assert (harness.ended(1).finish_reason, harness.ended(1).stop_reason) == ("stop", None)


@pytest.mark.parametrize("least", [{"min_tokens": 10}, {"min_length": 15}])
def test_no_token_ends_it_before_its_least_length(least):
    harness = Harness()
    harness.add(asked(eos_token_id=list(range(0, 512, 2)), **least))
    harness.run()
    assert len(harness.tokens(1)) >= 10


def test_a_worker_that_ends_it_too_early_is_not_believed():
    harness = Harness()
    harness.add(asked(min_tokens=2, eos_token_id=[7]))
    for expected in (None, "stop"):
        harness.plan()
        harness.results[0].sampled = column([7])
        harness.finish()
        assert (harness.ended(1) and harness.ended(1).finish_reason) == expected


def test_no_step_is_planned_for_a_sequence_whose_last_token_is_in_flight():
    harness = Harness()
    harness.add(asked(max_tokens=1))
    assert harness.plan() is not None
    assert harness.plan() is None
    assert harness.scheduler.stats().free_blocks == 64, "nor does it hold blocks any longer"
    harness.run()
    assert harness.tokens(1) == FREE[:1]


def test_a_slot_is_used_again_in_the_very_next_plan():
    harness = Harness(max_num_seqs=2)
    harness.add(*(asked(number, max_tokens=1) for number in range(6)))
    for _ in range(3):
        assert len(harness.rows(harness.plan())) == 2
    harness.run()
    assert [harness.tokens(number) for number in range(6)] == [FREE[:1]] * 6


def test_an_aborted_sequence_ends_with_499_and_keeps_what_it_got():
    harness = Harness()
    harness.add(ASKED)
    for _ in range(3):
        harness.plan()
    harness.finish()
    harness.abort(1 * 128)
    ended = harness.ended(1)
    assert (ended.finish_reason, ended.error_code, harness.tokens(1)) == ("abort", 499, FREE[:1])
    harness.run()
    assert harness.tokens(1) == FREE[:1], "surplus results are dropped"
    assert harness.scheduler.stats().free_blocks == 64


def test_an_abort_while_it_waits_opens_and_ends_it():
    harness = Harness(max_num_seqs=1)
    harness.add(asked(1), asked(2))
    harness.plan()
    harness.abort(2 * 128)
    assert harness.heard[2 * 128].opened.inference_start_time is None
    assert harness.ended(2).finish_reason == "abort"
    harness.run()
    assert harness.tokens(1) == FREE


def test_an_abort_of_an_unknown_or_ended_sequence_is_ignored():
    harness = Harness()
    harness.add(ASKED)
    harness.run()
    harness.abort(1 * 128, 12345)
    assert harness.ended(1).finish_reason == "length"


def test_one_sample_may_end_before_the_others():
    harness = Harness()
    three = prompt(1, [3, 1, 4, 1, 5], n=3, temperature=1, max_tokens=10)
    harness.add(three)
    harness.plan()
    harness.abort(1 * 128 + 1)
    harness.run()
    assert [harness.ended(1, sample).finish_reason for sample in range(3)] == ["length", "abort", "length"]
    assert harness.tokens(1, 2) == answer(three, 2, 128)[0]


def test_a_result_out_of_order_is_refused():
    harness = Harness()
    harness.add(ASKED)
    harness.plan()
    harness.results[0].step = 7
    with pytest.raises(RuntimeError, match="answered step 7, and the step in flight is 0"):
        harness.finish()
