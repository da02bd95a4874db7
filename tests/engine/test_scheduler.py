"""How a step is filled: whose turn it is, and with how many tokens.

Plain requests run through none of what is there for others: grammars, beams, adapters, a second tier.
"""

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

from builders.engine_harness import Harness, prompt

from penstock.protocol.messages import values
from penstock.protocol.parameters.beams import BeamSearchParams


def tokens_by_seed(harness: Harness) -> list[dict[int, int]]:
    """For each plan, how many tokens it computes of which request (seeds are request ids)."""
    owners: dict[int, int] = {}
    steps = []
    for plan in harness.plans:
        owners.update({new.slot: new.seed for new in plan.new})
        steps.append({owners[slot]: count for slot, count in harness.rows(plan).items()})
    return steps


def test_a_step_never_computes_more_than_max_num_batched_tokens_and_what_it_has_left_goes_to_who_waits():
    harness = Harness(max_num_batched_tokens=16)
    harness.add(*(prompt(number, range(100 * number, 100 * number + 10 + 4 * number)) for number in range(5))).run()
    assert max(sum(values(plan.num_tokens)) for plan in harness.plans) == 16
    assert tokens_by_seed(harness)[0] == {0: 10, 1: 6}


def test_a_long_prompt_is_computed_in_chunks_beside_the_answers_of_others():
    harness = Harness(max_num_batched_tokens=16).add(prompt(1, [1, 2], max_tokens=12))
    harness.plan()
    harness.add(prompt(2, range(40), max_tokens=2)).run()
    assert tokens_by_seed(harness)[:5] == [{1: 2}, {1: 1, 2: 15}, {1: 1, 2: 15}, {1: 1, 2: 10}, {1: 1, 2: 1}]


def test_every_running_sequence_gets_a_token_in_every_step_and_keeps_its_place_among_the_rows():
    harness = Harness(max_num_seqs=50, max_num_batched_tokens=4)
    harness.add(*(prompt(number, [number], max_tokens=3 + 5 * (number % 2)) for number in range(12))).run()
    for before, after in pairwise(map(list, tokens_by_seed(harness))):
        stayed = [number for number in before if number in after]
        assert [number for number in after if number in before] == stayed and len(after) <= 4
        assert all(len(harness.tokens(number)) == 3 + 5 * (number % 2) for number in set(before) - set(after))


def test_stats_tell_what_was_computed_and_what_was_found():
    harness = Harness().add(prompt(1, range(20)), prompt(2, range(20))).run()
    stats = harness.scheduler.stats()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (40, 16, 16)
    assert (stats.running, stats.waiting, stats.preemptions) == (0, 0, 0)
    assert stats.steps == len(harness.plans)


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
