"""What a sequence finds computed already, and what others may find of it."""

import pytest
from builders.engine_harness import Harness, answer, prompt

PREFIX = [(7 * place) % 500 for place in range(48)]


def test_sixteen_requests_that_arrive_together_with_one_prefix_compute_it_once():
    prefix = [(3 * place) % 500 for place in range(512)]
    harness = Harness(num_blocks=200, block_size=32, max_model_len=1024, max_num_seqs=16, max_num_batched_tokens=1024)
    prompts = [prompt(number, [*prefix, number, number + 1], max_tokens=1) for number in range(16)]
    harness.add(*prompts).run()
    assert harness.worker.num_computed == 512 + 16 * 2
    assert len(harness.plans) == 1, "they need not even wait for one another"
    assert [harness.num_cached(number) for number in range(16)] == [0] + [512] * 15


def test_a_hit_stops_one_token_short_of_the_prompt_and_goes_on_into_an_answer_that_it_continues():
    harness = Harness(max_num_batched_tokens=16)
    harness.add(*(prompt(number, [*PREFIX, number], max_tokens=1) for number in range(4))).run()
    assert harness.worker.num_computed == len(PREFIX) + 4, "each token once, though it takes several steps"
    assert harness.visit(4, PREFIX) == len(PREFIX) - 4
    assert harness.visit(5, PREFIX, cache_salt="a") == 0
    harness.visit(6, PREFIX[1:11], max_tokens=20)
    # The last token was never computed: 29 of 30 positions hold something, 28 of them full blocks.
    assert harness.visit(7, [*PREFIX[1:11], *harness.tokens(6), 9, 9, 9]) == 28


def test_without_prefix_caching_only_the_samples_of_one_request_share():
    harness = Harness(shares_prefixes=False)
    harness.add(prompt(1, PREFIX, n=3, max_tokens=1, temperature=1), prompt(2, PREFIX, max_tokens=1)).run()
    assert harness.worker.num_computed == len(PREFIX) + 2 * 4 + len(PREFIX)
    assert {harness.heard[128 + sample].opened.num_cached for sample in range(3)} == {0}
    assert harness.num_cached(2) == 0


def test_samples_share_full_blocks_and_differ_behind_them():
    harness = Harness()
    asked = prompt(1, PREFIX[:10], n=4, temperature=1, max_tokens=12)
    harness.add(asked).run()
    assert harness.worker.num_computed == 10 + 3 * 2 + 4 * 11
    for sample in range(4):
        assert harness.tokens(1, sample) == answer(asked, sample, 128)[0]
    assert len({tuple(harness.tokens(1, sample)) for sample in range(4)}) == 4


def test_log_probabilities_of_a_prompt_are_computed_not_found_and_given_once():
    harness = Harness(max_num_batched_tokens=16).add(prompt(1, PREFIX)).run()
    harness.add(prompt(2, PREFIX, n=2, prompt_logprobs=1)).run()
    first, second = harness.heard[2 * 128], harness.heard[2 * 128 + 1]
    assert (first.opened.num_cached, first.prompt_positions) == (0, len(PREFIX) - 1)
    assert second.prompt_positions == 0


def test_what_a_failed_row_computed_is_not_found(monkeypatch):
    harness = Harness(max_num_batched_tokens=64).add(prompt(1, PREFIX))
    fail_next_step(monkeypatch)
    harness.step()
    assert (harness.ended(1).finish_reason, harness.ended(1).error_code) == ("error", 500)
    assert harness.visit(2, PREFIX) == 0


def fail_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.worker.stand_in import runner as stand_in_runner

    visits = iter([None, "nan"])
    monkeypatch.setattr(stand_in_runner, "point", lambda name: next(visits, None))


def test_surplus_positions_are_not_found():
    harness = Harness()
    asked = prompt(1, PREFIX[:5], max_tokens=40)
    ending = answer(asked, 0, 128)[0][2]  # the 8th token: with it two blocks are full
    harness.add(prompt(1, PREFIX[:5], max_tokens=40, stop_token_ids=[ending])).run()
    history = PREFIX[:5] + harness.tokens(1)
    assert len(history) == 8
    harness.add(prompt(2, [*history, 1, 2, 3])).run()
    assert harness.num_cached(2) == 4
