"""What groups of layers keep, give back and find again: windows, states with their checkpoints, and all together.

The worker without a model checks each step: what rows read is what they computed. Here it is counted how much that is.
"""

import msgspec
from builders.cases import for_each
from builders.engine_harness import Harness, answer, prompt, with_claims
from builders.erratic_pace import hold_back

from penstock.engine.memory.states import States
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.messages import sequence_id
from penstock.protocol.parameters.beams import BeamSearchParams

BLOCK = 4
FULL, WINDOW, STATES = GroupPlan("full", 1, 1, 200), GroupPlan("window", 1, 1, 40, 10), GroupPlan("state", 1, 1, 12)
MIXES = {
    "full": (FULL,),
    "window": (WINDOW,),
    "full and window": (FULL, WINDOW),
    "full and states": (FULL, STATES),
    "states": (STATES,),
    "window and states": (WINDOW, STATES),
    "all": (FULL, WINDOW, STATES),
}


def harness_of(*groups: GroupPlan, **options) -> Harness:
    return Harness(**{"groups": groups, "block_size": BLOCK, "max_model_len": 600, **options})


def computed_by(harness: Harness, request_id: int, token_ids: list[int], **params) -> int:
    before = harness.worker.num_computed
    harness.visit(request_id, token_ids, **params)
    return harness.worker.num_computed - before


def some(count: int, seed: int = 1) -> list[int]:
    return [(seed * 37 + place * place) % 500 for place in range(count)]


def test_statistics_count_the_memory_of_all_groups():
    full, states = (msgspec.structs.replace(group, block_bytes=size) for group, size in ((FULL, 100), (STATES, 7000)))
    harness = harness_of(full, states)
    assert harness.scheduler.stats().kv_bytes == harness.scheduler.stats().free_kv_bytes == 200 * 100 + 12 * 7000
    harness.add(prompt(1, some(3), max_tokens=50))
    harness.plan()
    stats = harness.scheduler.stats()
    assert stats.used_kv_bytes == (stats.blocks - stats.free_blocks) * 100 + 7000
    harness.run()
    assert harness.scheduler.stats().kv_usage == 0


@for_each("mix", MIXES)
def test_twenty_turns_compute_each_token_once_but_for_a_rest_of_blocks(mix):
    """A turn finds what lies in full blocks, whatever the layers keep, and computes less than a block again. The last
    token of an answer was never computed: it counts as one of these."""
    harness = harness_of(*MIXES[mix])
    history: list[int] = []
    for turn in range(20):
        said = some(11 + turn % 5, seed=turn)
        computed = computed_by(harness, turn, history + said, max_tokens=7 + turn % 6)
        answered = harness.tokens(turn)
        again = computed - len(said) - (len(answered) - 1)
        assert 0 <= again <= BLOCK, f"turn {turn} computed {again} tokens that an earlier one has computed"
        history += said + answered


@for_each("mix", MIXES)
def test_a_preempted_sequence_goes_on_from_where_it_was(mix):
    harness = harness_of(*MIXES[mix]).add(prompt(1, some(30), max_tokens=50))
    harness.step(30)
    (sequence,) = harness.scheduler.sequences.values()
    known, before = sequence.num_known, harness.worker.num_computed
    harness.scheduler.preemption.preempt(sequence)
    harness.scheduler.running.settle()
    harness.run()
    assert harness.tokens(1) == answer(prompt(1, some(30), max_tokens=50), 0, 600)[0]
    again = harness.worker.num_computed - before - (80 - known)
    assert again <= 2 * BLOCK, f"{again} tokens were computed again"


@for_each("mix", MIXES)
def test_beams_on_groups_find_what_they_find_alone(mix):
    alone = beam_answers(harness_of(*MIXES["full"]))
    assert beam_answers(harness_of(*MIXES[mix])) == alone
    scarce = [msgspec.structs.replace(group, num_blocks=max(5, group.num_blocks // 8)) for group in MIXES[mix]]
    assert beam_answers(harness_of(*scarce)) == alone


def beam_answers(harness: Harness) -> list[list[int]]:
    for number in range(3):
        searched = prompt(number, some(18 + number), n=4, max_tokens=14)
        searched.beams = BeamSearchParams(beam_width=4, max_tokens=14)
        harness.add(searched)
    harness.run()
    return [harness.tokens(number, sample) for number in range(3) for sample in range(4)]


def test_a_long_prompt_holds_no_more_of_a_window_than_it_and_a_chunk_which_is_cut_to_the_blocks_that_are_free():
    window = GroupPlan("window", 1, 1, 12, window=10)
    harness = harness_of(FULL, window, max_num_batched_tokens=16).add(prompt(1, some(300), max_tokens=100))
    most = 0
    while harness.plan() is not None:
        most = max(most, 12 - harness.scheduler.cache.groups[1].pool.num_free)
        harness.finish()
    assert harness.ended(1).finish_reason == "length"
    assert most <= -(-(10 + 16) // BLOCK) + 1
    window = GroupPlan("window", 1, 1, 5, window=10)
    harness = harness_of(FULL, window, max_num_batched_tokens=100)
    assert computed_by(harness, 1, some(90), max_tokens=30) == 119
    assert max(sum(harness.rows(plan).values()) for plan in harness.plans) == 5 * BLOCK


def test_a_prefix_is_found_again_after_its_window_was_given_back_unless_the_window_has_lost_its_blocks():
    harness = harness_of(FULL, WINDOW)
    harness.visit(1, some(60), max_tokens=1)
    assert harness.visit(2, some(60), max_tokens=1) == 56
    assert harness.visit(3, some(32) + [7] * 30, max_tokens=1) == 32, "the blocks of a window are where they were"
    harness = harness_of(FULL, GroupPlan("window", 1, 1, 8, window=10))
    assert [harness.visit(number, some(60, 1 + number % 2), max_tokens=1) for number in range(3)] == [0, 0, 0]


def test_samples_go_on_from_one_state_as_a_third_prompt_does_and_a_long_one_has_checkpoints_on_its_way():
    harness = harness_of(FULL, STATES)
    asked = {"n": 4, "temperature": 1, "max_tokens": 5}
    assert computed_by(harness, 1, some(41), **asked) == 41 + 3 * 1 + 4 * 4
    assert computed_by(harness, 2, some(41), **asked) == 4 * 1 + 4 * 4
    harness = harness_of(FULL, STATES)
    shared = some(40)
    assert harness.visit(1, shared + some(10, 2)) == 0
    assert harness.visit(2, shared + some(10, 3)) == 0, "there is no state where the prompts part"
    assert harness.visit(3, shared + some(10, 4)) == 40
    harness = harness_of(FULL, STATES, checkpoint_every=16, max_num_batched_tokens=37)
    harness.visit(1, some(100))
    assert harness.visit(2, some(70) + [3] * 9) == 64


def test_an_answer_keeps_its_newest_checkpoint_alone_and_what_was_evicted_comes_back_from_the_second_tier():
    harness = harness_of(FULL, STATES)
    harness.visit(1, some(10), max_tokens=100)
    states = harness.scheduler.cache.groups[1]
    assert len(states.pool._found) <= 3, "the prompt's, the newest, and the one before while it wasn't named"
    harness = harness_of(FULL, GroupPlan("state", 1, 1, 3, None, 16))
    harness.visit(1, some(41), max_tokens=1)
    for number in range(2, 6):
        harness.visit(number, some(41, number), max_tokens=9)
    assert harness.visit(6, some(41), max_tokens=1) == 40
    assert harness.scheduler.cache.groups[1].second_tier.num_loaded == 1


def test_as_many_sequences_run_as_there_are_states_and_none_is_held_when_nothing_runs():
    harness = harness_of(FULL, WINDOW, GroupPlan("state", 1, 1, 5), max_num_batched_tokens=16)
    harness.add(*(prompt(number, some(10, number), max_tokens=60) for number in range(5)))
    harness.step(40)
    assert harness.scheduler.stats().running == 5
    harness.run()
    for group in harness.scheduler.cache.groups:
        assert group.pool.num_free == group.pool.num_blocks
        assert not (isinstance(group, States) and group._kept)


def test_a_state_that_is_kept_by_who_ends_before_the_step_is_free_for_who_waits():
    """Kept states are free in the next step. None came here after the one that was empty."""
    groups = GroupPlan("full", 1, 1, 6), GroupPlan("state", 1, 1, 2, None, 8)
    harness = harness_of(*groups, block_size=2, max_num_seqs=1, max_num_batched_tokens=7)
    claimed, waiting = prompt(1, some(5), max_tokens=50), prompt(2, some(5), max_tokens=4)
    harness.add(with_claims(claimed, [answer(claimed, 0, 600)[0]], -1), waiting).run()
    assert harness.ended(1).error_code == 429, "it fills all blocks"
    assert harness.tokens(2) == answer(waiting, 0, 600)[0]


@for_each("mix", ["states", "full and states"])
def test_states_of_a_row_that_failed_are_not_found_and_others_until_their_time_is_over(mix):
    harness = harness_of(*MIXES[mix], prefix_cache_ttl=10.0, max_num_batched_tokens=64).add(prompt(1, some(41)))
    harness.plan()
    harness.fail()
    assert harness.visit(2, some(41)) == 0
    harness.now += 9
    assert harness.visit(3, some(41)) == 40
    harness.now += 11
    assert harness.visit(4, some(41)) == 0


@for_each("mix", MIXES)
def test_the_time_of_a_prefix_may_be_over_while_it_is_looked_for(mix):
    """Each look at the clock takes a second: at some of these times, what was there is gone at the next look."""
    for seconds in range(1, 60, 1 if mix == "all" else 4):
        harness = harness_of(*MIXES[mix], prefix_cache_ttl=float(seconds))
        harness.tick = 1.0
        harness.visit(1, some(41), max_tokens=1)
        harness.visit(2, some(41), max_tokens=1)


@for_each("seed", range(1, 4))
@for_each("is_aborted", [True, False])
@for_each("mix", [mix for mix in MIXES if mix != "states"])
def test_a_chunk_that_is_dropped_amid_its_layers_leaves_nothing_to_be_found(seed, is_aborted, mix):
    """What is found is compared with the tokens that were computed into it."""
    harness = harness_of(*MIXES[mix], num_layers=3, max_num_batched_tokens=24, checkpoint_every=8)
    hold_back(harness.scheduler, seed)
    harness.add(prompt(1, [7], max_tokens=60)).step()
    harness.add(prompt(2, range(9, 129)))
    long = harness.scheduler.sequences[sequence_id(2, 0)]
    while not long.num_begun:
        harness.step()
    num_computed = long.num_computed
    if is_aborted:
        harness.abort(long.id)
    else:
        harness.scheduler.preemption.preempt(long)
        harness.scheduler.running.settle()
    harness.add(prompt(3, range(9, 129))).run()
    assert harness.tokens(3) == answer(prompt(3, range(9, 129)), 0, harness.limits.max_model_len)[0]
    assert not is_aborted or harness.num_cached(3) <= num_computed
    stats = harness.scheduler.stats()
    assert stats.free_blocks == stats.blocks
