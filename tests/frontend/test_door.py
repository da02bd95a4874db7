"""What the door of a model lets in, and that it keeps nothing of it."""

import gc
import tracemalloc

import pytest
from builders.bundled_model import VOCABULARY, door_of_pocket
from builders.cases import for_each

from penstock import BeamSearchParams, ConfigError, RequestError, SamplingParams
from penstock.frontend.requests.continuation import Continuation, packed_logprobs
from penstock.frontend.requests.door import Door
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.protocol.messages import Said
from penstock.protocol.outputs import Logprob
from penstock.protocol.parameters.early_stop import CYCLE_GUARD, EarlyStop
from penstock.protocol.parameters.guided import GuidedDecodingParams
from penstock.protocol.wire import column

PROMPT = list(range(10, 50))


@pytest.fixture(scope="module")
def door() -> Door:
    return door_of_pocket(limit_logprobs=VOCABULARY * 100)


def asked(door: Door, **params) -> PendingRequest:
    [pending] = door.admit(list(door.parse([PROMPT], SamplingParams(**params))), notify=lambda request: None)
    return pending


@for_each("params, is_given", [
    ({"logprobs": -1, "max_tokens": 100}, True),
    ({"logprobs": -1, "max_tokens": 60, "prompt_logprobs": -1}, True),
    ({"logprobs": -1, "max_tokens": 20, "n": 5}, True),
    ({"logprobs": 20, "prompt_logprobs": 20, "n": 128}, True),
    ({"logprobs": -1}, False), ({"logprobs": -1, "max_tokens": 101}, False),
    ({"logprobs": -1, "max_tokens": 61, "prompt_logprobs": -1}, False),
    ({"logprobs": -1, "max_tokens": 21, "n": 5}, False),
])  # fmt: skip
def test_log_probabilities_beyond_the_limit_are_refused_with_both_figures(door, params, is_given):
    pending = asked(door, **params)
    output = pending.output
    assert pending.is_finished is not is_given
    assert is_given or (output.error_code == 400 and output.finished)
    assert is_given or f"limit is {VOCABULARY * 100:,} (option limit_logprobs)" in output.error_msg


@for_each("name", ["logprobs", "prompt_logprobs"])
def test_a_model_can_be_started_that_gives_none(name):
    output = asked(door_of_pocket(enable_logprob=False), **{name: 0}).output
    assert output.error_code == 400 and f"{name}=0: " in output.error_msg and "enable_logprob=False" in output.error_msg
    assert not asked(door_of_pocket(enable_logprob=False)).is_finished


def test_a_bad_word_is_banned_as_it_stands_and_behind_one_space(door):
    def banned(word: str) -> list[list[int]]:
        return asked(door, bad_words=[word]).prompt.params.bad_words_ids

    (alone, behind_a_space), spaced = banned("blue"), banned("  blue")
    assert alone != behind_a_space == spaced[1] != spaced[0]


def test_lengths_that_count_the_prompt_become_those_of_the_answer(door):
    params = asked(door, min_length=len(PROMPT) + 5, max_length=len(PROMPT) + 9).prompt.params
    assert (params.min_tokens, params.max_tokens, params.min_length, params.max_length) == (5, 9, 0, None)


def test_a_requests_own_early_stop_goes_before_the_option_and_the_option_before_the_usual_guard():
    door = door_of_pocket(early_stop_config={"window_size": 9})
    given = (None, CYCLE_GUARD, EarlyStop(window_size=5))
    assert [asked(door, early_stop=each).prompt.params.early_stop.window_size for each in given] == [9, 9, 5]


NO_LOGPROBS, SCORED = Said(column([5, 6])), Said(column([5, 6]), [packed_logprobs([{5: Logprob(-1.0, 1)}], 0)])


def test_where_a_prompts_log_probabilities_are_wanted_its_first_sample_is_computed_again(door):
    prompts = door.parse([Continuation(PROMPT, [NO_LOGPROBS] * 2)], SamplingParams(n=2, prompt_logprobs=0))
    [pending] = door.admit(list(prompts), notify=lambda request: None)
    assert pending.prompt.said == [Said(b""), NO_LOGPROBS]


@for_each("params, said, words", [
    ({}, [Said(column([5, 10**6]))], "token id 1000000"),
    ({}, [Said(column([-1]))], "token id -1"),
    ({}, [Said(b"12345")], "5 bytes"),
    ({"max_tokens": 1}, [NO_LOGPROBS], "has said 2 tokens, and its answer may have 1"),
    ({"n": 2}, [NO_LOGPROBS] * 3, "3 samples have said something, and the request has n=2"),
    ({"logprobs": 0}, [NO_LOGPROBS], "without their log-probabilities"),
    ({"logprobs": 0}, [SCORED], "other tokens than its log-probabilities are of"),
    ({"logprobs": 1}, [SCORED], "other log-probabilities than the request wants"),
    ({"early_stop": {"window_size": 9}}, [NO_LOGPROBS], "can't go on without logprobs"),
    (BeamSearchParams(beam_width=2), [NO_LOGPROBS], "A beam search can't go on"),
])  # fmt: skip
def test_an_answer_that_cannot_go_on_from_what_it_is_said_to_have_said_is_refused(door, params, said, words):
    params = SamplingParams(**params) if isinstance(params, dict) else params
    [pending] = door.admit(list(door.parse([Continuation(PROMPT, said)], params)), notify=lambda request: None)
    assert pending.is_finished and pending.output.error_code == 400 and words in pending.output.error_msg


SCHEMA = {"enum": [f"{n:07}" for n in range(10_000)]}
PARAMS = {
    "schemas": lambda number: {"guided_decoding": GuidedDecodingParams(json=SCHEMA)},
    "bad words": lambda number: {"bad_words": [f"{n:x} {number}" for n in range(1000)]},
    "ids of bad words": lambda number: {"bad_words_ids": [[n, number, 5] * 10 for n in range(1000)]},
    "ids of one bad word": lambda number: {"bad_words_ids": [[5] * 100_000]},
    "biases": lambda number: {"logit_bias": dict.fromkeys(range(1000), number / 100)},
}  # fmt: skip


@for_each("kind", PARAMS)
def test_nothing_is_kept_of_requests_of_many_clients(kind):
    door = door_of_pocket()

    def pass_through(number: int) -> None:
        asked = list(door.parse(["a", "b"], SamplingParams(**PARAMS[kind](number))))
        door.of(str(number)).admit(asked, notify=lambda request: None)

    pass_through(0)  # imports what this kind of request needs
    tracemalloc.start()
    try:
        for number in range(1, 4):
            pass_through(number)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_what_is_wrong_with_shared_parameters_is_told_to_each():
    door, wrong = door_of_pocket(), SamplingParams(stop_token_ids=[10**6])
    pending = door.admit(list(door.parse(["a", "b", "c"], wrong)), lambda request: None)
    assert all("not in the vocabulary" in one.take().error_msg for one in pending)


PREDICTED = "We send the parts on Friday."


@for_each("written", [
    PREDICTED, {"type": "content", "content": PREDICTED},
    {"type": "content", "content": [{"type": "text", "text": PREDICTED[:7]}, {"type": "text", "text": PREDICTED[7:]}]},
])  # fmt: skip
def test_a_prediction_is_sent_as_tokens_for_each_sample_and_changes_nothing_else(door, written):
    ids = door.tokenizer.encode(PREDICTED, add_special_tokens=False)
    predicted, plain = asked(door, prediction=written, n=2, seed=1), asked(door, n=2, seed=1)
    assert predicted.prompt.expected == [column(ids)] * 2 and plain.prompt.expected == []
    assert predicted.prompt.params == plain.prompt.params
    assert asked(door, prediction=written, max_tokens=3).prompt.expected == [column(ids[:3])]


def test_a_prediction_is_not_sent_where_nothing_drafts_it(door):
    assert asked(door_of_pocket(speculative_config=False), prediction=PREDICTED * 9000).prompt.expected == []
    beams = BeamSearchParams(beam_width=2, max_tokens=4)
    [searched] = door.admit(list(door.parse([PROMPT], beams)), notify=lambda request: None)
    assert searched.prompt.expected == []


def test_a_prediction_is_cut_to_what_the_answer_may_have_and_never_refused_for_its_length(door):
    ids = door.tokenizer.encode(PREDICTED * 9, add_special_tokens=False)
    assert asked(door, prediction=PREDICTED * 90_000, max_tokens=9).prompt.expected == [column(ids[:9])]
    found = asked(door, prediction=PREDICTED * 90_000).prompt
    assert len(found.expected[0]) == 4 * found.params.max_tokens
    [cut] = asked(door_of_pocket(limit_prompt_chars=len(PROMPT)), prediction=PREDICTED).prompt.expected
    assert 0 < len(cut) <= 4 * len(PROMPT)


@for_each("written, words", [
    *((each, "prediction=.*must be text") for each in (
        7, ["text"], {"content": PREDICTED}, {"type": "content"}, {"type": "content", "content": [{"type": "image"}]},
        "\ud800",
    )),
    ({"type": "content", "content": PREDICTED, "txt": 1}, "prediction has no field 'txt'"),
    ({"type": "content", "content": [{"type": "text", "text": PREDICTED, "txt": 1}]}, "prediction has no field 'txt'"),
])  # fmt: skip
def test_a_prediction_in_another_form_or_with_an_unknown_field_is_refused(written, words):
    with pytest.raises(RequestError, match=words):
        SamplingParams(prediction=written)


def test_as_many_log_probabilities_may_be_asked_for_as_the_option_says():
    whole = VOCABULARY
    for limit, allowed, refused in (
        (None, (0, 20, -1), (21,)), (3, (3,), (4, -1)), (-1, (500, -1), ()), (0, (0,), (1, -1)),
        (whole, (whole, -1), ()),
    ):  # fmt: skip
        door = door_of_pocket(max_logprobs=limit)
        for name in ("logprobs", "prompt_logprobs"):
            for number in (*allowed, *refused):
                output = asked(door, max_tokens=1, **{name: number}).output
                words = f"{name}={number}: at most {20 if limit is None else limit:,} "
                assert (words in (output.error_msg or "")) is (number in refused), (limit, name, number, output)
    limited = asked(door_of_pocket(max_logprobs=-1, limit_logprobs=999), max_tokens=10, logprobs=100)
    assert "option limit_logprobs" in limited.output.error_msg
    with pytest.raises(ConfigError, match="raw_logprobs, processed_logprobs, raw_logits, processed_logits"):
        door_of_pocket(logprobs_mode="processed")


def test_arguments_of_fastdeploys_processors_are_fields_of_the_request():
    names = ["ThinkingBudgetLogitsProcessor", "fastdeploy.model_executor.logits_processor:LogitBiasLogitsProcessor"]
    door = door_of_pocket(logits_processors=names, reasoning_parser="qwen3")
    assert door.config == door_of_pocket(reasoning_parser="qwen3").config, "no more than the fields is needed"

    def sent(**given):
        pending = asked(door, **given)
        assert pending.output.error_msg is None, pending.output
        return pending.prompt

    budget = {"thinking_budget": 20, "logit_bias": {5: 2.0}}
    prompt, plain = sent(logits_processors_args=budget), sent(reasoning_max_tokens=20, logit_bias={5: 2.0})
    assert prompt.params == plain.params and prompt.thought == plain.thought
    ended = sent(logits_processors_args={"thinking_budget": 20, "think_stop_sentence": "Enough."})
    decode = door.tokenizer.decode
    assert decode(ended.thought.forced) == "Enough." + decode(plain.thought.forced)
    assert sent(reasoning_max_tokens=7, logits_processors_args=budget).params.reasoning_max_tokens == 7
    for wrong, words in (
        ({"thinking_budget": -1}, "thinking_budget=-1"), ({"think_stop_sentence": "x"}, "give thinking_budget"),
        ({"thinking_budget": 1, "think_stop_sentence": 3}, "think_stop_sentence=3"), ({"budget": 1}, "'budget'"),
        ({"logit_bias": {5: 200}}, "logit_bias"),
    ):  # fmt: skip
        assert words in asked(door, logits_processors_args=wrong).output.error_msg
