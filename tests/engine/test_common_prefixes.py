"""Prompts with one prefix that arrive together beside streams: the first computes it, and the others wait for it."""

from builders.cases import for_each
from builders.engine_harness import answer, prompt
from builders.paced import LONG, Paced, streamed

from penstock.protocol.messages import FailedRow, Prompt, sequence_id


def with_prefix(request_id: int, suffix: int = 6, **params) -> Prompt:
    return prompt(request_id, [each % 500 for each in range(LONG)] + [request_id] * suffix, max_tokens=3, **params)


@for_each("num_layers", [0, 4])
def test_of_prompts_with_one_prefix_next_to_streams_the_later_wait_for_the_firsts_blocks(num_layers):
    harness = Paced(streamed(1), num_layers=num_layers, max_num_seqs=32).add(*map(with_prefix, range(10, 30)))
    harness.run_until_begun(29)
    stats = harness.scheduler.stats()
    computed = stats.prompt_tokens - stats.cached_tokens
    assert computed <= 3 + LONG + 20 * (6 + harness.limits.block_size), "the prefix is computed once"


def test_a_prompt_with_another_prefix_or_salt_waits_for_none():
    harness = Paced(streamed(1), max_num_seqs=32)
    harness.add(*map(with_prefix, range(10, 14)), prompt(20, [3] * 20, max_tokens=3))
    harness.add(with_prefix(21, cache_salt="own"))
    harness.run_until_begun(20)
    assert not any(harness.has_begun(each) for each in range(10, 14)), "it has overtaken those that wait"
    salted = harness.scheduler.sequences[sequence_id(21, 0)]
    assert len(followers := harness.scheduler.admission.followers.waiting) == 3 and salted not in followers


@for_each("fate", ["abort", "preempt", "fail", "follower aborts"])
def test_whatever_becomes_of_the_first_the_others_go_on_and_get_their_answers(fate):
    harness = Paced(streamed(1), max_num_seqs=32).add(*(asked := [with_prefix(each) for each in range(10, 16)]))
    while not harness.scheduler.admission.followers.waiting:
        harness.step()
    first = harness.scheduler.sequences[sequence_id(10, 0)]
    match fate:
        case "abort":
            harness.abort(first.id)
        case "preempt":
            harness.scheduler.preemption.preempt(first)
        case "fail":
            step = harness.scheduler.in_flight[-1]
            harness.scheduler._fail(step, FailedRow(step.rows.index(first), "planted"))
        case "follower aborts":
            harness.abort(sequence_id(11, 0))
    lost = {"abort": 10, "fail": 10, "follower aborts": 11}.get(fate)
    left = [each for each in asked if each.request_id != lost]
    while any(sequence_id(each.request_id, 0) in harness.scheduler.sequences for each in left):
        harness.step()
    assert all(harness.tokens(each.request_id) == answer(each, 0, 2048)[0] for each in left)
    assert not harness.scheduler.admission.followers.waiting
