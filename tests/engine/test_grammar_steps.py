"""Guided sequences in the engine: what they get is what they would get alone, whatever else is planned when."""

from itertools import product

import msgspec
import pytest
from builders.cases import for_each
from builders.engine_harness import answer, drawn, prompt, with_claims
from builders.guided_harness import OPEN_THOUGHT, THOUGHT, GuidedHarness, ScriptCompiler, allowed, grammar
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.admission.limits import DraftLimits
from penstock.engine.grammar.constraint import Busy
from penstock.engine.grammar.thoughts import ThoughtState
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.messages import Prompt, Said, sequence_id
from penstock.protocol.parameters.guided import CallGuide, Thought
from penstock.protocol.wire import column, values

WORD = [[7], [8], [9], list(range(20, 40)), [10], list(range(512)), [11], [12], [13], [14]]
END = 511
# What begins a call is sampled every sixth time.
OPENINGS, CLOSE = [[token] for token in range(100, 180)], 190
CALL = [[7], list(range(20, 40)), [10], [11], list(range(512)), [12]]


def guided(request_id: int, script, *, thought=None, calls=(), token_ids=(1, 2, 3), **params) -> Prompt:
    params = {"eos_token_id": [END], "max_tokens": 30, "temperature": 1, **params}
    own = grammar(script) if script is not None and not calls else None
    asked = prompt(request_id, token_ids, **params)
    return msgspec.structs.replace(asked, grammar=own, thought=thought, calls=list(calls))


def calls(script, closings=(CLOSE,), openings=OPENINGS) -> list[CallGuide]:
    return [CallGuide([list(mark) for mark in openings], list(closings), grammar(script))]


def claimed(asked: Prompt, wrong: int) -> Prompt:
    """The request with what it would be answered as a claim, but for the token at the place `wrong`."""
    return with_claims(asked, [answer(asked, sample, 128, allowed)[0] for sample in range(asked.params.n)], wrong)


def expecting(asked: Prompt) -> Prompt:
    """The request, with its answers to draft from."""
    wholes = [answer(asked, sample, 128, allowed)[0] for sample in range(asked.params.n)]
    return msgspec.structs.replace(asked, expected=list(map(column, wholes)))


def check(harness: GuidedHarness, *asked: Prompt) -> None:
    for each in asked:
        for sample in range(each.params.n):
            alone = answer(each, sample, harness.limits.max_model_len, following=allowed)
            expected = drawn(each, sample, *alone)
            got = harness.tokens(each.request_id, sample), harness.ended(each.request_id, sample).finish_reason
            assert got == expected, f"{each.params} {each.grammar} {each.thought}"


@for_each("steps_in_flight", [1, 2, 3])
@for_each("limit", [None, 3])
@for_each("script", [WORD, None])
def test_a_call_in_a_thoughts_place_is_free_of_grammar_and_limit(script, limit, steps_in_flight):
    thought = msgspec.structs.replace(OPEN_THOUGHT, calls=[[token] for token in range(100, 160)])
    asked = [guided(number, script, thought=thought, reasoning_max_tokens=limit) for number in range(8)]
    harness = GuidedHarness(num_blocks=128, max_num_seqs=8).add(*asked).run(steps_in_flight)
    check(harness, *asked)


ENDS, CLOSINGS = [(1, 2), (2, 100), (400, 401)], [[CLOSE], [], [CLOSE, 191]]
PARAMS = [{"logprobs": 1}, {"n": 3}, {"stop_token_ids": [10, CLOSE]}, {"max_tokens": 4}]


@for_each("steps_in_flight", [1, 3])
@for_each("ends, closings, params", [
    *((*each, {}) for each in product(ENDS, CLOSINGS)),
    *((ENDS[number % 3], CLOSINGS[number % 2], params) for number, params in enumerate(PARAMS)),
])  # fmt: skip
def test_calls_alone_are_held_to_their_grammar_from_the_mark_to_the_end(ends, params, closings, steps_in_flight):
    guide = calls(CALL, closings, [*OPENINGS, [400, 401]])
    asked = [guided(number, None, calls=guide, token_ids=(1, *ends), **params) for number in range(3)]
    harness = GuidedHarness(num_blocks=128).add(*asked).run(steps_in_flight)
    check(harness, *asked)


@for_each("wrong", [-1, 5])
@for_each("closings", [[CLOSE], []])
@for_each("ends", [(1, 2), (400, 401)])
def test_claimed_tokens_behind_the_mark_of_a_call_are_drawn_again_under_its_masks(ends, closings, wrong):
    guide = calls(CALL, closings, [*OPENINGS, [400, 401]])
    asked = [claimed(guided(number, None, calls=guide, token_ids=(1, *ends)), wrong) for number in range(3)]
    check(GuidedHarness(num_blocks=128).add(*asked).run(1), *asked)


@for_each("one_dear_in", [0, 1])
@for_each("wrong", range(3))
def test_an_answer_ends_with_the_first_token_that_is_not_claimed_wherever_its_grammar_is_followed(wrong, one_dear_in):
    asked = claimed(guided(0, [list(range(50))] * 3, eos_token_id=[]), wrong)
    check(GuidedHarness(one_dear_in=one_dear_in).add(asked).run(), asked)


def test_an_answer_without_a_call_is_computed_like_one_without_tools():
    several = [[guided(number, None, calls=given, logprobs=1) for number in range(4)] for given in (calls(CALL), [])]
    for asked in several[0]:
        asked.calls = calls(CALL, openings=[[510, 510]])
    with_tools, without = (GuidedHarness(num_blocks=128).add(*asked).run() for asked in several)
    assert with_tools.plans == without.plans and not any(plan.masked for plan in with_tools.plans)


@for_each("draft_limits", [None, DraftLimits(9, 64)])
def test_certain_tokens_go_down_as_forced_ones_within_the_budget_of_a_step(draft_limits):
    harness = (
        GuidedHarness(draft_limits=draft_limits).add(asked := guided(0, [[token] for token in range(60, 80)])).run()
    )
    check(harness, asked)
    assert any(plan.forced for plan in harness.plans)
    assert len(harness.plans) < 10  # of 21 tokens: cut only where a block of 4 is full
    harness = GuidedHarness(max_num_batched_tokens=5, block_size=32, num_blocks=16, draft_limits=draft_limits)
    harness.add(*(asked := [guided(number, [[token] for token in range(60, 80)]) for number in range(3)])).run()
    check(harness, *asked)
    assert max(sum(values(plan.num_tokens)) for plan in harness.plans) <= 5


@for_each("params", [{"logprobs": 1}, {"bad_words_ids": [[400, 401]]}])
def test_tokens_that_somebody_asks_about_are_sampled_one_by_one(params):
    harness = GuidedHarness().add(asked := guided(0, WORD, **params)).run()
    check(harness, asked)
    assert not any(plan.forced for plan in harness.plans)


@for_each("window, budget, steps_in_flight", [(16, 5, 1), (16, 32, 3), (40, 5, 3), (40, 32, 1)])
def test_an_answer_that_has_become_a_cycle_ends_at_the_same_length_whatever_a_step_had_room_for(
    window, budget, steps_in_flight
):
    script = [list(range(20, 99))] * 30 + [[7], [8]] * 50
    guard = {"strategy": "cycle", "window_size": window}
    asked = [guided(number, script, max_tokens=120, early_stop=guard) for number in range(2)]
    free = [
        guided(9, script, max_tokens=120),
        guided(8, script, max_tokens=120, early_stop={**guard, "enable_early_stop": False}),
    ]
    harness = GuidedHarness(max_num_batched_tokens=budget, num_blocks=256).add(*asked, *free).run(steps_in_flight)
    check(harness, *free)
    length = next(end for end in range(window, 120, 64) if end >= 30 + window)
    for each in asked:
        alone = answer(each, 0, harness.limits.max_model_len, following=allowed)[0]
        assert harness.tokens(each.request_id) == alone[:length]
        ended = harness.ended(each.request_id)
        assert (ended.finish_reason, ended.stop_reason) == ("stop", "repetition")
    assert harness.scheduler.stats().generated_tokens == sum(map(len, map(harness.tokens, (0, 1, 8, 9))))


def test_a_request_whose_grammar_is_being_compiled_holds_nobody_up_and_may_be_aborted():
    harness = GuidedHarness(compiler=ScriptCompiler(is_slow=True))
    harness.add(first := guided(0, WORD), second := guided(1, None), guided(2, WORD))
    assert harness.scheduler.stats().waiting == 3
    harness.abort(sequence_id(2, 0))
    assert harness.ended(2).finish_reason == "abort" and harness.scheduler.stats().waiting == 2
    while harness.ended(1) is None:
        harness.step()
    assert harness.ended(0) is None
    harness.run()
    check(harness, first, second)


def test_a_grammar_that_is_none_ends_its_request_alone():
    for is_slow in (False, True):
        harness = GuidedHarness(compiler=ScriptCompiler(is_slow=is_slow))
        harness.add(guided(0, []), other := guided(1, WORD)).run()
        ended = harness.ended(0)
        assert (ended.finish_reason, ended.error_code, ended.error_msg) == ("error", 400, "An empty script.")
        check(harness, other)


class Turns(ScriptCompiler):
    """The client `flood` has no turn; who leaves is noted."""

    def __init__(self, *, is_slow: bool) -> None:
        super().__init__(is_slow=is_slow)
        self.left = []

    def find(self, asked, client):
        is_refused = client == "flood" and not self.is_slow
        return Busy(client, "Ask again later.") if is_refused else super().find(asked, client)

    def leave(self, asked, client):
        self.left.append((asked, client))

    def collect(self):
        busy = [(asked, Busy("flood", "Ask again later.")) for asked in self._asked]
        return busy + super().collect()


@for_each("is_slow", [False, True])
def test_a_client_that_has_no_turn_for_its_grammar_is_told_so_and_others_go_on_with_the_same(is_slow):
    harness = GuidedHarness(compiler=Turns(is_slow=is_slow))
    harness.add(guided(0, WORD, client="flood", n=2), other := guided(1, WORD, client="other")).run()
    for sample in range(2):
        ended = harness.ended(0, sample)
        assert (ended.finish_reason, ended.error_code, ended.error_msg) == ("error", 429, "Ask again later.")
    check(harness, other)
    assert harness.compiler.left == [] and harness.scheduler.stats().waiting == 0


def test_a_grammar_is_left_with_the_last_sequence_of_its_client_that_waits_for_it():
    harness = GuidedHarness(compiler=Turns(is_slow=True))
    harness.add(guided(0, WORD, client="a", n=2), guided(1, WORD, client="a"), other := guided(2, WORD, client="b"))
    harness.abort(sequence_id(0, 0), sequence_id(0, 1))
    assert harness.compiler.left == [] and harness.scheduler.stats().waiting == 2
    harness.abort(sequence_id(1, 0))
    assert harness.compiler.left == [(other.grammar, "a")] and harness.scheduler.stats().waiting == 1
    harness.run()
    check(harness, other)


@for_each("hard", range(2, 9))
@for_each("drafts", range(3))
def test_where_a_mask_takes_too_long_drafts_behind_it_do_not_count(drafts, hard):
    compiler = ScriptCompiler(hard=hard)
    harness = GuidedHarness(compiler=compiler, draft_limits=DraftLimits(9, 64), drafts=drafts, num_blocks=128)
    asked = [expecting(guided(number, [list(range(50 * number, 50 * number + 50))] * 12)) for number in range(3)]
    harness.add(*asked).run()
    check(harness, *asked)
    assert harness.follower.num_asked > 0 and harness.scheduler.counters.accepted_tokens > 0


def test_a_grammar_without_an_ending_to_sample_ends_the_answer_itself():
    harness = GuidedHarness()
    harness.add(free := guided(0, WORD, eos_token_id=[]), short := guided(1, WORD, min_tokens=20)).run()
    assert [harness.ended(each).finish_reason for each in (0, 1)] == ["stop", "stop"]
    check(harness, free, short)


def test_a_row_is_masked_only_while_its_thought_may_be_used_up():
    harness = GuidedHarness().add(guided(0, None, thought=OPEN_THOUGHT, reasoning_max_tokens=10, max_tokens=25)).run()
    masked = [bool(plan.masked) for plan in harness.plans]
    assert 0 < sum(masked) < 6 and not any(masked[:9]) and not any(masked[-5:])


def test_a_look_ahead_at_a_mark_of_several_tokens_leaves_the_thought_where_it_was():
    thought = ThoughtState(Thought(is_open=False, openings=[[1, 2]], closings=[[3]], forced=[3]), None)
    for state in (thought.fork(), thought):
        assert state.openers == [1]
        state.take(1)
        assert state.openers == [2] and state.may_begin
        state.take(2)
        assert state.is_open


CALLING_THOUGHT = msgspec.structs.replace(OPEN_THOUGHT, calls=OPENINGS[:30])
scripts = st.lists(
    st.one_of(st.integers(0, 299).map(lambda token: [token]), st.just(list(range(50))), st.just([3, 5, 511])),
    min_size=1,
    max_size=25,
)
bodies = scripts.map(lambda script: [*script, [7]])  # no call ends with a mark that begins one
requests = st.fixed_dictionaries(
    {
        "script": st.one_of(st.none(), scripts),
        "thought": st.sampled_from([None, None, THOUGHT, OPEN_THOUGHT, CALLING_THOUGHT]),
        "calls": st.one_of(st.just([]), st.builds(calls, bodies, st.sampled_from([[CLOSE], []])), st.just(calls([]))),
        "token_ids": st.lists(st.sampled_from([1, 2, 3, 3, 100]), min_size=1, max_size=20),
        "max_tokens": st.sampled_from([30, 12, 1]),
        "min_tokens": st.sampled_from([0, 0, 1]),
        "reasoning_max_tokens": st.sampled_from([None, None, 0, 1, 4]),
        "eos_token_id": st.sampled_from([[511], [511, 5], []]),
        "n": st.sampled_from([1, 1, 3]),
        "temperature": st.sampled_from([0, 1]),
        "logprobs": st.sampled_from([None, None, 1]),
        "lengths": st.just([]) | st.lists(st.integers(0, 30), min_size=1, max_size=3),
        "is_claimed": st.booleans(),
    }
)


def gone_on(request_id: int, *, lengths: list[int], is_claimed: bool, **parts) -> Prompt:
    """A request whose first samples have said so many tokens before, or whose samples are claimed to say all, perhaps
    with a wrong one at the first of these places."""
    asked = guided(request_id, **parts)
    if is_claimed:
        return claimed(asked, lengths[0] if lengths else -1)
    whole = [answer(asked, sample, 128, allowed)[0] for sample in range(len(lengths[: asked.params.n]))]
    said = [Said(column(tokens[:length])) for tokens, length in zip(whole, lengths)]
    return msgspec.structs.replace(asked, said=said)


def history_against_alone(several, limits, steps_in_flight, is_slow, one_dear_in, hard, seed):
    compiler = ScriptCompiler(is_slow=is_slow, seed=seed, hard=hard)
    harness = GuidedHarness(
        compiler=compiler, one_dear_in=one_dear_in, seed=seed, drafts=seed, max_num_seqs=4, **limits
    )
    asked = [expecting(gone_on(number, **each)) for number, each in enumerate(several)]
    for number, each in enumerate(asked):
        harness.add(each)
        if number % 2 and harness.plan():
            harness.finish()
    harness.run(steps_in_flight)
    check(harness, *asked)
    stats = harness.scheduler.stats()
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.blocks)


WINDOW, STATES = GroupPlan("window", 1, 1, 24, 7), GroupPlan("state", 1, 1, 6)


def limits(block_size, num_blocks, others, budget, draft_limits):
    groups = (GroupPlan("full", 1, 1, num_blocks), *others)  # of layers
    return {"block_size": block_size, "groups": groups, "max_num_batched_tokens": budget, "draft_limits": draft_limits}


HISTORY = {
    "several": st.lists(requests, min_size=1, max_size=5),
    "limits": st.builds(
        limits,
        st.sampled_from([4, 2, 16]),
        st.sampled_from([30, 40, 64]),
        st.sampled_from([(), (), (WINDOW,), (STATES,), (WINDOW, STATES)]),
        st.sampled_from([32, 9, 5]),
        st.sampled_from([None, DraftLimits(6, 40), DraftLimits(1, 3), DraftLimits(20, 60)]),
    ),
    "steps_in_flight": st.sampled_from([2, 1, 3]),
    "is_slow": st.booleans(),
    "one_dear_in": st.sampled_from([0, 1, 3, 10]),
    "hard": st.sampled_from([None, None, 2, 7, 1]),
    "seed": st.integers(0, 1000),
}


@given(**HISTORY)
@settings(max_examples=60)
def test_guided_answers_are_those_that_each_would_get_alone(**history):
    history_against_alone(**history)


@pytest.mark.long
@given(**HISTORY)
@settings(max_examples=5000)
def test_guided_answers_are_those_that_each_would_get_alone_in_many_histories(**history):
    history_against_alone(**history)
