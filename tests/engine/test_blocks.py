"""The pool of KV blocks: who holds what, what is reused first; keys, equal exactly where the content is; and what a
sequence finds computed already.
"""

from itertools import combinations

import pytest
from builders.cases import for_each
from builders.engine_harness import TOKENS, Harness, answer, key, prompt

from penstock.engine.memory.blocks import BlockPool
from penstock.engine.memory.keys import next_key, root_key
from penstock.protocol.wire import column


def test_nameless_blocks_are_reused_first_then_the_least_recently_used_chain_from_its_tail():
    pool = BlockPool(5)
    old, new, nameless = pool.allocate(2), pool.allocate(2), pool.allocate(1)
    for number, block in enumerate(old + new):
        pool.name(block, key(number))
    for table in (old, new, nameless):
        pool.release(table)
    pool.hold(old)
    pool.release(old)
    assert pool.free_blocks() == [*nameless, *new[::-1], *old[::-1]]
    with pytest.raises(RuntimeError, match=r"6 blocks were asked for, and 5 of 5 are free"):
        pool.allocate(6)


@for_each("tables", [[[0, 0]], [[0], [0]], [[]], [[0, 1]]])
def test_check_notices_tables_that_are_not_what_the_pool_counted(tables):
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(RuntimeError):
        pool.check(tables)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_depends_on_every_token_before_it_and_on_salt_adapter_and_privacy_and_on_no_process():
    root = root_key(None, None, None)
    tokens = column([1, 2, 3, 4])
    assert next_key(root, tokens).hex() == "bbc2285c53383d6d8a95d8274780a14f289133ee812d49ba0000000000000000"
    assert next_key(next_key(root, tokens), tokens) != next_key(root, tokens)
    assert next_key(next_key(root, column([1, 2])), tokens) != next_key(next_key(root, column([1, 3])), tokens)
    others = [root_key("", None, None), root_key("7", None, None), root_key(None, "7", None), root_key(None, None, 7)]
    assert all(one != other for one, other in combinations([root, *others], 2))


# --- shared prefixes -------------------------------------------------------------------------------------------------


PREFIX = TOKENS[:48]


def test_sixteen_requests_that_arrive_together_with_one_prefix_compute_it_once():
    prefix = [(3 * place) % 500 for place in range(512)]
    harness = Harness(num_blocks=200, block_size=32, max_model_len=1024, max_num_seqs=16, max_num_batched_tokens=1024)
    prompts = [prompt(number, [*prefix, number, number + 1], max_tokens=1) for number in range(16)]
    harness.add(*prompts).run()
    assert harness.worker.num_computed == 512 + 16 * 2
    assert len(harness.plans) == 1, "they need not even wait for one another"
    assert [harness.num_cached(number) for number in range(16)] == [0] + [512] * 15


def test_a_hit_stops_one_token_short_of_the_prompt_and_goes_on_into_an_answer_but_not_into_surplus_positions():
    harness = Harness(max_num_batched_tokens=16)
    harness.add(*(prompt(number, [*PREFIX, number], max_tokens=1) for number in range(4))).run()
    assert harness.worker.num_computed == len(PREFIX) + 4, "each token once, though it takes several steps"
    assert harness.visit(4, PREFIX) == len(PREFIX) - 4
    assert harness.visit(5, PREFIX, cache_salt="a") == 0
    harness.visit(6, PREFIX[1:11], max_tokens=20)
    # The last token was never computed: 29 of 30 positions hold something, 28 of them full blocks.
    assert harness.visit(7, [*PREFIX[1:11], *harness.tokens(6), 9, 9, 9]) == 28
    harness = Harness()
    asked = prompt(1, PREFIX[:5], max_tokens=40)
    ending = answer(asked, 0, 128)[0][2]  # the 8th token: with it two blocks are full
    harness.add(prompt(1, PREFIX[:5], max_tokens=40, stop_token_ids=[ending])).run()
    history = PREFIX[:5] + harness.tokens(1)
    assert len(history) == 8
    harness.add(prompt(2, [*history, 1, 2, 3])).run()
    assert harness.num_cached(2) == 4


def test_samples_share_full_blocks_differ_behind_them_and_alone_share_without_prefix_caching():
    harness = Harness(shares_prefixes=False)
    harness.add(prompt(1, PREFIX, n=3, max_tokens=1, temperature=1), prompt(2, PREFIX, max_tokens=1)).run()
    assert harness.worker.num_computed == len(PREFIX) + 2 * 4 + len(PREFIX)
    assert {harness.heard[128 + sample].opened.num_cached for sample in range(3)} == {0}
    assert harness.num_cached(2) == 0
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
