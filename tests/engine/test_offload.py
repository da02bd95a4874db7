"""The second tier: what leaves the pool of blocks comes back from CPU memory by its key instead of being computed anew.

The worker of `Harness` keeps blocks and cells, and ends the run when a row reads anything but its own history.
"""

from builders.cases import for_each
from builders.engine_harness import TOKENS, Harness, answer, key, prompt

from penstock.engine.memory.offload import SecondTierIndex
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import column, values

PREFIX = TOKENS[:40]


def others(number: int, length: int = 40) -> list[int]:
    """A prompt that shares nothing with any other."""
    return [number + 1, *((3 * place + number) % 500 for place in range(length - 1))]


# --- cells -----------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_cell_is_overwritten_first_and_a_loaded_chain_from_its_tail():
    tier = SecondTierIndex(3)
    tier.offer(key(1), 10)
    tier.offer(key(2), 20)
    tier.offer(key(3), 30)
    tier.take_moves()
    tier.offer(key(1), 11)  # has its copy already, and is younger now
    tier.offer(key(4), 40)
    assert tier.take_moves().saves == [40, 1]
    assert [tier.use(key(number)) for number in (1, 2, 3, 4)] == [True, False, True, True]
    tier.pin([key(4), key(1), key(3)])
    tier.take_moves()
    tier.offer(key(7), 7)
    assert [tier.use(key(number)) for number in (4, 1, 3)] == [True, True, False]


def test_what_is_filled_twice_before_a_plan_or_forgotten_is_not_saved_and_what_a_plan_loads_not_overwritten():
    tier = SecondTierIndex(1)
    tier.offer(key(1), 10)
    tier.offer(key(2), 20)
    tier.check()
    assert tier.take_moves().saves == [20, 0] and not tier.use(key(1))
    tier.offer(key(3), 30)
    tier.forget(key(3))
    tier.check()
    assert tier.take_moves().saves == [] and not tier.use(key(3))
    tier = SecondTierIndex(2)
    tier.offer(key(1), 10)
    tier.offer(key(2), 20)
    tier.take_moves()
    tier.pin([key(1), key(2)])
    tier.offer(key(3), 30)
    tier.load(key(1), 11)
    tier.load(key(2), 21)
    moves = tier.take_moves()
    assert moves.saves == [] and sorted(moves.loads[1::2]) == [11, 21]
    tier.offer(key(3), 30)
    assert len(tier.take_moves().saves) == 2, "the next plan may"


# --- what requests get of it -----------------------------------------------------------------------------------------


def test_a_prefix_evicted_from_the_pool_comes_back_from_the_second_tier_for_its_own_salt():
    harness = Harness(num_blocks=12, num_cpu_blocks=48)
    harness.visit(1, PREFIX, cache_salt="a")
    harness.visit(2, others(2))
    computed = harness.worker.num_computed
    assert harness.visit(3, PREFIX, cache_salt="a") == 36
    assert harness.worker.num_computed - computed == 4 + 1
    stats = harness.scheduler.stats()
    assert stats.loaded_blocks > 0 and stats.saved_blocks >= stats.loaded_blocks
    assert harness.visit(4, PREFIX, cache_salt="b") == 0


def test_the_head_of_a_prefix_may_be_in_the_pool_and_its_tail_in_the_second_tier():
    harness = Harness(num_blocks=12, num_cpu_blocks=24)
    harness.visit(1, PREFIX)
    harness.visit(2, others(2, 20))
    pool = harness.scheduler.cache.groups[0].pool
    assert 0 < sum(pool.find(each) is not None for each in keys_of(harness, PREFIX)) < 9
    assert harness.visit(3, PREFIX) == 36
    assert 0 < len(values(harness.plans[-2].groups[0].loads)) // 2 < 9


def test_what_was_loaded_is_not_saved_again_and_two_that_come_together_load_their_common_prefix_once():
    harness = Harness(num_blocks=12, num_cpu_blocks=60)
    for round_number in range(4):
        for number in range(3):
            harness.visit(10 * round_number + number, others(number))
        if round_number == 1:
            saved = harness.scheduler.stats().saved_blocks
    assert harness.scheduler.stats().saved_blocks == saved > 0
    harness = Harness(num_blocks=24, num_cpu_blocks=24)
    harness.visit(1, PREFIX)
    for number in range(2, 5):
        harness.visit(number, others(number))
    before = harness.scheduler.stats().loaded_blocks
    harness.add(*(prompt(number, [*PREFIX, number], max_tokens=1) for number in (5, 6))).run()
    assert [harness.num_cached(number) for number in (5, 6)] == [40, 40]
    assert harness.scheduler.stats().loaded_blocks - before == 10


# --- who gave way ----------------------------------------------------------------------------------------------------


@for_each("shares_prefixes", [True, False])
@for_each("steps_in_flight", [1, 2, 3])
def test_a_preempted_sequence_resumes_without_computing_a_full_block_again(steps_in_flight, shares_prefixes):
    harness = Harness(num_blocks=14, num_cpu_blocks=40, shares_prefixes=shares_prefixes)
    prompts = [prompt(number, others(20 * number, 6), max_tokens=30) for number in range(5)]
    harness.add(*prompts).run(steps_in_flight)
    preemptions = harness.scheduler.counters.preemptions
    assert preemptions > 3
    for asked in prompts:
        assert harness.tokens(asked.request_id) == answer(asked, 0, 128)[0]
    # Alone they compute 6 + 29 each; every return computes the rest of one block at most.
    assert harness.worker.num_computed <= 5 * 35 + 4 * preemptions


def test_a_block_that_a_fork_copies_into_is_saved_before():
    harness = Harness(num_blocks=16, num_cpu_blocks=64)
    harness.visit(1, others(1, 41))  # of which ten blocks stay in the pool
    searched = prompt(2, others(2, 18), n=4, max_tokens=2)
    searched.beams = BeamSearchParams(beam_width=4, max_tokens=2)
    harness.add(searched).run()
    [forking] = [group for plan in harness.plans for group in plan.groups if group.copies]
    assert set(values(forking.copies)[1::2]) & set(values(forking.saves)[::2]), "a fork takes a block that is saved"
    harness.visit(3, others(3, 56))
    assert harness.visit(4, others(1, 41)) == 40


# --- what went wrong -------------------------------------------------------------------------------------------------


def test_what_a_failed_row_computed_is_not_found_in_the_second_tier_either():
    harness = Harness(num_blocks=12, num_cpu_blocks=48)
    harness.visit(1, PREFIX)
    harness.visit(2, others(2, 46))
    assert all(map(harness.scheduler.cache.groups[0].second_tier.use, keys_of(harness, PREFIX)))
    harness.add(prompt(3, PREFIX))
    harness.plan()
    harness.fail()
    assert harness.ended(3).error_code == 500
    assert harness.visit(4, PREFIX) == 0


def keys_of(harness: Harness, token_ids: list[int]) -> list[bytes]:
    """Of the full blocks that a prompt of these tokens may find."""
    from penstock.engine.memory.keys import next_key

    packed, keys = column(token_ids), []
    previous = harness.scheduler.cache.root_of(prompt(0, token_ids))
    for start in range(0, len(packed) - 16, 16):
        keys.append(previous := next_key(previous, packed[start : start + 16]))
    return keys
