"""Clients share the engine: none waits long for another, whatever that one asks for."""

from collections import Counter

import pytest
from builders.cases import for_each
from builders.engine_harness import Harness, answer, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.admission.queue import PATIENCE_STEPS
from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams


def admitted(harness: Harness) -> list[int]:
    return [new.seed for plan in harness.plans for new in plan.new]


def search(number: int, client: str, width: int, max_tokens: int, priority: int = 0) -> Prompt:
    asked = prompt(number, [number % 400 + 1, 2, 3], client=client, n=width, max_tokens=max_tokens, priority=priority)
    asked.beams = BeamSearchParams(beam_width=width, max_tokens=max_tokens)
    return asked


def steps_until(harness: Harness, number: int, most: int) -> int:
    for count in range(most):
        if number in admitted(harness):
            return count
        if len(harness.results) == 2:
            harness.finish()
        harness.plan()
    pytest.fail(f"request {number} did not run within {most} steps")


@for_each("num_clients", [2, 3, 7])
def test_equal_clients_are_admitted_equally_often(num_clients):
    harness = Harness()
    for number in range(30 * num_clients):  # one after another, as whole floods
        harness.add(prompt(number, [number + 1], client=str(number // 30), max_tokens=1 + number % 5))
    harness.run()
    for end in range(num_clients, 25 * num_clients, num_clients):
        shares = Counter(number // 30 for number in admitted(harness)[:end])
        assert max(shares.values()) - min(shares[each] for each in range(num_clients)) <= 4, shares


@for_each("options", [{}, {"num_blocks": 40, "max_num_seqs": 50}], ids=["slots", "blocks"])
def test_a_client_that_holds_everything_with_long_answers_gives_a_place_within_so_many_steps(options):
    harness = Harness(**{"num_blocks": 300, **options})
    longs = [prompt(number, [number + 1], client="long", max_tokens=120) for number in range(24)]
    one = prompt(60, range(100, 110), client="one", max_tokens=3)
    harness.add(*longs)
    harness.step(8)
    harness.add(one)
    assert steps_until(harness, 60, 200) <= PATIENCE_STEPS + 4
    preemptions = harness.scheduler.counters.preemptions
    assert preemptions > 0
    harness.run()
    for asked in (*longs, one):
        assert harness.tokens(asked.request_id) == answer(asked, 0, 128)[0]


def test_the_only_slot_goes_to_a_higher_priority_and_the_answer_that_gave_way_goes_on():
    harness = Harness(max_num_seqs=1, num_blocks=300)
    harness.add(below := prompt(0, [1], client="batch", priority=5, max_tokens=60))
    harness.plan()
    harness.add(prompt(10, [5], client="person", max_tokens=2))
    assert steps_until(harness, 10, 100) <= PATIENCE_STEPS + 4
    harness.run()
    assert harness.tokens(0) == answer(below, 0, 128)[0]


def test_nobody_gives_way_to_a_lower_priority_with_a_single_place_to_its_own_client_or_takes_a_place_back_at_once():
    harness = Harness(max_num_seqs=3, num_blocks=300)
    harness.add(*(prompt(number, [number + 1], max_tokens=100 if number < 3 else 2) for number in range(20))).run()
    assert (admitted(harness), harness.scheduler.counters.preemptions) == (list(range(20)), 0)
    for priority, client, places in ((1, "other", 4), (0, "other", 1), (0, "long", 4)):
        harness = Harness(max_num_seqs=places, num_blocks=300)
        harness.add(*(prompt(number, [number + 1], client="long", max_tokens=120) for number in range(places)))
        harness.plan()
        harness.add(prompt(10, [5], client=client, priority=priority, max_tokens=1)).run()
        assert harness.scheduler.counters.preemptions == 0
        assert admitted(harness)[-1] == 10
    harness = Harness(max_num_seqs=4, num_blocks=300)
    harness.add(*(prompt(number, [number + 1], client="long", max_tokens=120) for number in range(4)))
    harness.plan()
    harness.add(prompt(10, [5], client="other", max_tokens=50))
    steps_until(harness, 10, 100)
    for _ in range(40):
        harness.finish()
        harness.plan()
    assert harness.scheduler.counters.preemptions == 1
    assert harness.scheduler.waiting.client("other").num_running == 1


def test_beams_that_wait_for_one_another_are_not_kept_apart_by_other_clients():
    """A search holds its places without going on until its last beam has had a turn."""
    harness = Harness(max_num_seqs=2, num_blocks=200).add(search(0, "search", 4, 6))
    for number in range(1, 400):
        harness.add(prompt(number, [number % 400 + 1], client=str(number % 3), max_tokens=1))
    for _ in range(2000):
        if harness.ended(0) is not None:
            break
        harness.go_on()
    assert harness.ended(0) is not None and harness.scheduler.waiting
    harness.run()


floods = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(1, 30),  # tokens of the prompt
        st.integers(1, 60),  # of the answer
        st.sampled_from([1, 1, 1, 3]),  # samples, or beams
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@given(
    floods,
    st.sampled_from([8, 16, 40, 120]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, 1]),
    st.integers(1, 2),
    st.integers(0, 25),
)
@settings(max_examples=15)
def test_a_request_among_floods_runs_within_a_bound(flood, num_blocks, places, max_long, in_flight, before):
    """Whatever others ask for: it waits for its patience and until a place comes free, not for all their ends."""
    options = {"max_long_partial_prefills": max_long, "long_prefill_token_threshold": max_long and 12}
    harness = Harness(num_blocks=num_blocks, max_num_seqs=places, static_decode_blocks=0, **options)
    for number, (client, length, max_tokens, width, is_search) in enumerate(flood):
        if is_search and width > 1:
            harness.add(search(number, client, width, max_tokens))
        else:
            tokens = range(number, number + length)
            harness.add(prompt(number, tokens, client=client, max_tokens=max_tokens, n=width))
    for _ in range(before):
        harness.go_on(in_flight)
    one = 1000
    harness.add(prompt(one, [5, 6], client="one", max_tokens=2))
    # What a single client keeps of its own, to the end of its longest answer, and then each of the others has a turn.
    bound = (PATIENCE_STEPS + 100) * 5
    for _ in range(bound):
        if one in admitted(harness):
            break
        harness.go_on(in_flight)
    assert one in admitted(harness)
    harness.run(in_flight)
    assert harness.tokens(one) == answer(prompt(one, [5, 6], max_tokens=2), 0, 128)[0]
