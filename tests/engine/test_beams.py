"""Beam searches in the scheduler: what they find, what they share, and that neither depends on company or room.

`beam_search` is a search written once more and plainly: lists, no engine, no slots, every beam with its whole history.
It follows the published description of transformers' search (running beams, finished beams, three ways of stopping), so
that the engine's can be held against something that does not share a line with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from builders.cases import for_each
from builders.engine_harness import Harness, answer, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.decoding.beams import BeamSearch, Hypothesis
from penstock.protocol.messages import NewSlot, Prompt
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import column, float_values, values
from penstock.worker.stand_in.made_up import likely_tokens
from penstock.worker.stand_in.runner import VOCAB_SIZE, Slot

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
ENDS = [0, 37, 111, 256]


Following = Callable[[list[int]], list[tuple[int, float]]]  # likely next tokens with their log-probabilities


@dataclass
class Found:
    tokens: list[int]
    total: float
    score: float
    reason: str


def beam_search(
    prompt: list[int],
    following: Following,
    *,
    width: int,
    max_tokens: int,
    ends: list[int],
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    temperature: float = 0.0,
) -> list[Found]:
    running: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[Found] = []
    for length in range(1, max_tokens + 1):
        options = [
            (begun + [token], total + logprob)
            for begun, total in running
            for token, logprob in following(prompt + begun)
        ]
        options.sort(key=lambda option: option[1], reverse=True)
        options = options[: max(2, 1 + len(ends)) * width]

        def score(total: float, divided_by: int) -> float:
            return total / (temperature or 1.0) / divided_by**length_penalty

        for begun, total in options[:width]:
            if begun[-1] in ends or length == max_tokens:
                reason = "stop" if begun[-1] in ends else "length"
                finished.append(Found(begun, total, score(total, length), reason))
        finished = sorted(finished, key=lambda found: found.score, reverse=True)[:width]
        if length == max_tokens:
            break
        running = [option for option in options if option[0][-1] not in ends][:width]
        if len(finished) == width:
            longest = max_tokens if early_stopping == "never" and length_penalty > 0 else length
            if early_stopping is True or score(running[0][1], longest) <= finished[-1].score:
                break
    return finished


def search(number: int, token_ids: list[int], ends: list[int] = ENDS, *, priority: int = 0, **beams) -> Prompt:
    params = BeamSearchParams(**{"beam_width": 3, "max_tokens": 10, **beams})
    asked = prompt(number, token_ids, n=params.beam_width, max_tokens=params.max_tokens, eos_token_id=ends)
    asked.params.priority = priority
    asked.beams = params
    return asked


def expected(asked: Prompt) -> list[Found]:
    beams, tokens = asked.beams, values(asked.token_ids).tolist()
    ends = asked.params.eos_token_id

    def following(history: list[int]) -> list[tuple[int, float]]:
        count = max(2, 1 + len(ends)) * beams.beam_width
        new = NewSlot(0, column(history), len(history), 0, asked.params, 0, 0, num_candidates=count)
        found = likely_tokens(Slot(new), 0, VOCAB_SIZE)
        return list(zip(values(found.token_ids), float_values(found.logprobs), strict=True))

    return beam_search(
        tokens,
        following,
        width=beams.beam_width,
        max_tokens=beams.max_tokens,
        ends=ends,
        length_penalty=beams.length_penalty,
        early_stopping=beams.early_stopping,
        temperature=beams.temperature,
    )


def check(harness: Harness, asked: Prompt) -> None:
    for sample, found in enumerate(expected(asked)):
        ended = harness.ended(asked.request_id, sample)
        assert ended.finish_reason == found.reason, ended
        assert harness.tokens(asked.request_id, sample) == found.tokens, f"beam {sample}"
        assert ended.score.cumulative_logprob == pytest.approx(found.total)
        assert ended.score.score == pytest.approx(found.score)


@for_each("early_stopping, length_penalty, total, may_improve", [
    (False, 1.0, -0.9, True), (False, 1.0, -5.0, False), (True, 1.0, -0.9, False),
    ("never", 1.0, -5.0, True), ("never", 1.0, -50.0, False),  # over all of the tokens that it may have
    ("never", -1.0, -0.9, True), ("never", -1.0, -1.1, False),  # for which each token makes it worse
])  # fmt: skip
def test_a_search_goes_on_while_a_beam_may_beat_the_worst_of_what_is_finished(
    early_stopping, length_penalty, total, may_improve
):
    request = SimpleNamespace(endings={}, num_prompt=1, max_total=81)
    params = BeamSearchParams(2, 80, early_stopping=early_stopping, length_penalty=length_penalty)
    search = BeamSearch(request, params)
    search.hypotheses = [Hypothesis(None, search._score(-0.5, 2), "stop", 0)]
    assert search._may_improve(-99.0, 2), "fewer are finished than are wanted"
    search.hypotheses.append(Hypothesis(None, search._score(-1.0, 2), "stop", 0))
    assert search._may_improve(total, 2) is may_improve


def test_beams_share_the_full_blocks_of_what_they_have_in_common():
    asked = search(1, list(range(40)), ends=[], beam_width=4, max_tokens=3)
    harness = Harness(num_blocks=15).add(asked)
    check(harness.run(), asked)
    assert harness.scheduler.counters.preemptions == 0
    assert harness.worker.num_computed == 40 + 2 * 4, "each beam computes its own tokens and no other's"


def test_a_beam_that_takes_the_slot_of_one_that_gave_way_in_the_same_step_gets_none_of_its_blocks():
    sample = prompt(1, range(1, 6), max_tokens=5)
    asked = search(2, list(range(50, 55)), ends=[], beam_width=4, max_tokens=6, priority=-1)
    harness = Harness(num_blocks=9, block_size=2).add(sample, asked)
    check(harness.run(steps_in_flight=1), asked)
    assert harness.tokens(1) == answer(sample, 0, 128)[0]


def test_a_search_that_outgrows_the_pool_or_can_never_be_served_is_refused_for_every_sample():
    harness = Harness(num_blocks=4).add(search(1, TOKENS, ends=[], max_tokens=30)).run()
    ended = harness.ended(1, 2)
    assert (ended.finish_reason, ended.error_code) == ("error", 429)
    assert "17 tokens and fills the whole KV cache (4 blocks of 4)" in ended.error_msg
    harness = Harness(max_model_len=8).add(search(1, TOKENS))
    assert [harness.ended(1, sample).error_code for sample in range(3)] == [400] * 3, "it can never be served"


def test_an_abort_of_one_sample_ends_them_all():
    harness = Harness().add(search(1, TOKENS, ends=[]), search(2, TOKENS))
    harness.step(6)
    harness.abort(128 + 2)
    for sample in range(3):
        ended = harness.ended(1, sample)
        assert (ended.finish_reason, ended.error_code) == ("abort", 499)
        assert len(harness.tokens(1, sample)) > 0, "what there was is kept"
    harness.run()
    check(harness, search(2, TOKENS))


prompts = st.builds(
    lambda stem, length, tail: [stem] * length + tail,
    st.integers(1, 2),
    st.sampled_from([3, 8, 17]),
    st.lists(st.integers(1, 3), max_size=5),
)
searches = st.fixed_dictionaries(
    {
        "token_ids": prompts,
        "beam_width": st.sampled_from([2, 4, 1, 8]),
        "max_tokens": st.sampled_from([8, 14, 30, 1]),
        "early_stopping": st.sampled_from([False, True, "never"]),
        "length_penalty": st.sampled_from([1.0, 0.0, 2.0, -1.5]),
        "temperature": st.sampled_from([0.0, 0.5]),
        "ends": st.sampled_from([ENDS, [], [7]]),
        "priority": st.integers(-1, 1),
    }
)
rooms = st.fixed_dictionaries(
    {
        "num_blocks": st.sampled_from([12, 18, 9, 6, 40]),
        "block_size": st.sampled_from([4, 2, 8]),
        "max_num_seqs": st.sampled_from([4, 2, 8, 1]),
        "max_num_batched_tokens": st.sampled_from([16, 8, 60]),
        "static_decode_blocks": st.sampled_from([0, 2]),
        "num_cpu_blocks": st.sampled_from([0, 30, 2]),
        "shares_prefixes": st.booleans(),
    }
)
events = st.one_of(searches, st.tuples(prompts, st.integers(1, 16)), st.integers(1, 9))
histories = st.lists(events, min_size=3, max_size=9)


def play(options: dict, steps_in_flight: int, history: list, aborted: int | None) -> None:
    harness = Harness(max_model_len=60, **options)
    asked: list[Prompt] = []
    for event in history:
        if isinstance(event, int):
            for _ in range(event):
                harness.go_on(steps_in_flight)
            continue
        number = len(asked)
        if isinstance(event, dict):
            asked.append(search(number, **event))
        else:
            asked.append(prompt(number, event[0], max_tokens=event[1]))
        harness.add(asked[-1])
    if aborted is not None and aborted < len(asked):
        harness.abort(128 * aborted)
    harness.run(steps_in_flight)
    stats = harness.scheduler.stats()
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.blocks)
    assert sum(heard.preemptions for heard in harness.heard.values()) == stats.preemptions
    for each in asked:
        code = harness.ended(each.request_id).error_code
        if code in (400, 429) or each.request_id == aborted:
            continue
        if each.beams is not None:
            check(harness, each)
        else:
            assert harness.tokens(each.request_id) == answer(each, 0, 60)[0]


@given(rooms, st.integers(1, 3), histories, st.sampled_from([None, None, 0, 2]))
@settings(max_examples=50)
def test_searches_and_samples_in_any_company_get_what_they_get_alone(options, steps_in_flight, history, aborted):
    play(options, steps_in_flight, history, aborted)


@pytest.mark.long
@given(rooms, st.integers(1, 3), st.lists(histories, min_size=2, max_size=3), st.sampled_from([None, 0, 2]))
@settings(max_examples=2000)
def test_searches_and_samples_in_long_histories_get_what_they_get_alone(options, steps_in_flight, history, aborted):
    play(options, steps_in_flight, [event for part in history for event in part], aborted)
