"""Limits, refusals at the door, and how a step is filled: whose turn it is, and with how many tokens.

Plain requests run through none of what is there for others: grammars, beams, adapters, a second tier.
"""

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

from builders.cases import for_each
from builders.engine_harness import Harness, limits, prompt
from msgspec.structs import replace

from penstock.engine.admission.limits import DraftLimits, Limits
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import column, values


def memory_plan(device: str) -> MemoryPlan:
    return MemoryPlan(device, "", 0, 0, 0, [GroupPlan("full", 2, 0, 100)], 4096, 4096, 512, "float32", "float32")


@for_each("device, expected", [("cpu", (64, 512)), ("cuda:0", (256, 8192))])
def test_unset_limits_are_what_fits_the_device(device, expected):
    settled = Limits.settled(EngineConfig(model="m"), memory_plan(device))
    assert (settled.max_num_seqs, settled.max_num_batched_tokens) == expected
    given = Limits.settled(EngineConfig(model="m", max_num_seqs=3, max_num_batched_tokens=70), memory_plan(device))
    assert (given.max_num_seqs, given.max_num_batched_tokens) == (3, 70)


def test_drafts_get_the_room_that_pays_on_the_device_and_none_where_they_could_change_an_answer():
    def drafts(device: str, is_deterministic: bool = True, **options: Any) -> DraftLimits | None:
        plan = replace(memory_plan(device), is_deterministic=is_deterministic)
        return Limits.settled(EngineConfig.from_options("m", **options), plan).draft_limits

    assert (drafts("cpu"), drafts("cuda:0")) == (DraftLimits(31, 128, 4, rests=True), DraftLimits(7, 56, 7, rests=True))
    assert drafts("cuda:0", speculative_config={"method": "suffix", "num_speculative_tokens": 5}).each == 5
    for options in ({}, {"speculative_config": "suffix"}):
        assert drafts("cuda:0", is_deterministic=False, **options) is None


@for_each("length, options, params, sentence", [
    (0, {}, {}, "empty"),
    (128, {}, {}, "128 tokens, and max_model_len=128 must hold it"),
    (20, {}, {"max_tokens": None, "max_length": 20}, "max_length=20 leaves no token after a prompt of 20"),
    (41, {"num_blocks": 10}, {}, "41 tokens, and the KV cache holds 10 blocks of 4"),
    (33, {"enable_chunked_prefill": False}, {}, "33 tokens, and without chunked prefill"),
])  # fmt: skip
def test_a_request_that_can_never_be_served_ends_alone_with_400(length, options, params, sentence):
    harness = Harness(**options).add(prompt(1, range(length), **params), prompt(2, [5, 6])).run()
    assert (harness.ended(1).finish_reason, harness.ended(1).error_code) == ("error", 400)
    assert sentence in harness.ended(1).error_msg
    assert harness.heard[128].opened.inference_start_time is None
    assert harness.ended(2).finish_reason == "length"


@for_each("packed", [column([5, 100]), column([-1]), column([2**31 - 1]), b"bytes", column([7]) + b"x"])
def test_what_is_no_token_never_reaches_a_worker(packed):
    """Whatever the door has let pass: a worker would have to end its tree."""
    harness = Harness(vocab_size=100).add(replace(prompt(1, [5]), token_ids=packed), prompt(2, [99])).run()
    assert (harness.ended(1).finish_reason, harness.ended(1).error_code) == ("error", 400)
    assert "vocabulary (0 to 99)" in harness.ended(1).error_msg
    assert harness.ended(2).finish_reason == "length"


def test_no_more_sequences_run_than_a_step_takes_and_without_chunked_prefill_a_prompt_is_computed_in_one():
    harness = Harness(max_num_seqs=3).add(*(prompt(number, [number]) for number in range(10))).run()
    assert max(len(harness.rows(plan)) for plan in harness.plans) == 3
    assert limits(max_num_seqs=100, max_num_batched_tokens=16).num_slots == 16
    harness = Harness(enable_chunked_prefill=False)
    prompts = [prompt(number, range(30 * number, 30 * number + 20 + number % 7)) for number in range(9)]
    harness.add(*prompts).run()
    for plan in harness.plans:
        rows = harness.rows(plan)
        assert all(rows[new.slot] == len(new.token_ids) // 4 - new.num_computed for new in plan.new)


def test_blocks_are_kept_free_for_every_request_admitted():
    harness = Harness(num_blocks=12, static_decode_blocks=2).add(*(prompt(number, [number] * 4) for number in range(8)))
    harness.plan()
    # With n running, n blocks are taken and 2 n stay free: 12 blocks are enough for four.
    assert len(harness.scheduler.running) == 4
    harness = Harness(num_blocks=12, static_decode_blocks=50).add(prompt(1, range(40)), prompt(2, [1]))
    harness.plan()
    assert len(harness.scheduler.running) == 1
    harness.run()
    assert harness.ended(2).finish_reason == "length"


@for_each("num_blocks, most", [(10, 2), (11, 1), (21, 1)])
def test_prompts_in_computation_hold_no_more_blocks_than_their_share_unless_one_alone_is_larger(num_blocks, most):
    harness, numbers = Harness(num_blocks=40, kv_cache_ratio=0.5, max_num_batched_tokens=8), range(1, 5)
    harness.add(*(prompt(number, range(100 * number, 100 * number + 4 * num_blocks - 2)) for number in numbers))
    running, at_once = harness.scheduler.running, set()
    while (before := running.prefilling.copy()) or harness.scheduler.waiting:
        harness.plan()
        computed = {*before, *running.prefilling}  # the step ends one and begins another
        at_once.add(len(computed))
        assert sum(len(sequence.tables[0].block_ids) for sequence in computed) <= max(20, num_blocks)
        harness.finish()
    assert max(at_once) == most


@for_each("most", [1, 2])
def test_no_more_prompts_are_in_computation_than_max_num_partial_prefills(most):
    harness = Harness(max_num_partial_prefills=most)
    harness.add(*(prompt(number, range(10 * number, 10 * number + 6)) for number in range(8))).run()
    assert max(len(plan.new) for plan in harness.plans) == most


@for_each("options, order", [({"long_prefill_token_threshold": 40}, [1, 3, 2]), ({}, [1, 2, 3])])
def test_short_prompts_pass_a_long_one_that_waits_for_another_long_one_where_the_option_says_so(options, order):
    harness = Harness(max_num_batched_tokens=16, **options)
    harness.add(prompt(1, range(100)), prompt(2, range(100, 200)), prompt(3, [7, 8])).run()
    assert [new.seed for plan in harness.plans for new in plan.new] == order


def test_max_long_partial_prefills_alone_calls_a_prompt_long_from_four_per_cent_of_the_context_on():
    settled = limits(max_model_len=1000, max_long_partial_prefills=2)
    assert (settled.is_long(40), settled.is_long(41), settled.max_long) == (False, True, 2)
    settled = limits(max_model_len=1000, max_num_batched_tokens=32)  # without an option no prompt is long
    assert (settled.is_long(999), settled.max_long) == (False, None)


# --- steps -----------------------------------------------------------------------------------------------------------


def tokens_by_seed(harness: Harness) -> list[dict[int, int]]:
    """For each plan, how many tokens it computes of which request (seeds are request ids)."""
    owners: dict[int, int] = {}
    steps = []
    for plan in harness.plans:
        owners.update({new.slot: new.seed for new in plan.new})
        steps.append({owners[slot]: count for slot, count in harness.rows(plan).items()})
    return steps


def test_a_step_computes_what_it_may_a_long_prompt_in_chunks_beside_the_answers_of_others_and_statistics_tell_it():
    harness = Harness(max_num_batched_tokens=16)
    harness.add(*(prompt(number, range(100 * number, 100 * number + 10 + 4 * number)) for number in range(5))).run()
    assert max(sum(values(plan.num_tokens)) for plan in harness.plans) == 16
    assert tokens_by_seed(harness)[0] == {0: 10, 1: 6}
    harness = Harness(max_num_batched_tokens=16).add(prompt(1, [1, 2], max_tokens=12))
    harness.plan()
    harness.add(prompt(2, range(40), max_tokens=2)).run()
    assert tokens_by_seed(harness)[:5] == [{1: 2}, {1: 1, 2: 15}, {1: 1, 2: 15}, {1: 1, 2: 10}, {1: 1, 2: 1}]
    harness = Harness().add(prompt(1, range(20)), prompt(2, range(20))).run()
    stats = harness.scheduler.stats()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (40, 16, 16)
    assert (stats.running, stats.waiting, stats.preemptions) == (0, 0, 0)
    assert stats.steps == len(harness.plans)


def test_every_running_sequence_gets_a_token_in_every_step_and_keeps_its_place_among_the_rows():
    harness = Harness(max_num_seqs=50, max_num_batched_tokens=4)
    harness.add(*(prompt(number, [number], max_tokens=3 + 5 * (number % 2)) for number in range(12))).run()
    for before, after in pairwise(map(list, tokens_by_seed(harness))):
        stayed = [number for number in before if number in after]
        assert [number for number in after if number in before] == stayed and len(after) <= 4
        assert all(len(harness.tokens(number)) == 3 + 5 * (number % 2) for number in set(before) - set(after))


# --- plain requests --------------------------------------------------------------------------------------------------

OF_OTHERS = ("beam_decoding", "beams", "guided_decoding", "constraints", "constraint", "adapters", "offload")


def modules_of(harness: Harness) -> set[str]:
    """The modules of the engine that are called while the harness runs, by their last names."""
    called = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("penstock.engine."):
            called.add(frame.f_globals["__name__"].rpartition(".")[2])

    sys.setprofile(note)
    try:
        harness.run()
    finally:
        sys.setprofile(None)
    return called


def test_plain_requests_call_nothing_of_the_others_even_after_the_last_beam_has_ended():
    harness = Harness()
    search = prompt(0, [3, 1, 4], n=3, max_tokens=4)
    search.beams = BeamSearchParams(beam_width=3, max_tokens=4)
    harness.add(search)
    assert "beam_decoding" in modules_of(harness)
    harness.scheduler.check = lambda: None  # looks at everything
    for number in range(1, 12):
        harness.add(prompt(number, range(number, number + 9), n=2))
    called = modules_of(harness)
    assert "scheduler" in called and not called & set(OF_OTHERS)
