"""The detokenizer has the last word: what a caller gets depends on the request alone."""

import time
from array import array

from builders.cases import for_each
from builders.detokenized import DECODING, EOS, Caller, ended, ids_of, opened, step, steps_of

from penstock.protocol.messages import Logprobs, SequenceEnded, SequenceResumed, column, values

# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_request_gets_one_delta_at_its_end_or_one_a_step_if_it_is_streamed():
    ids = ids_of("hello world 🙂")
    for is_streamed, count in ((False, 1), (True, len(ids) + 1)):
        caller = Caller(step(opened=[opened(is_streamed=is_streamed)]), *steps_of(ids, ended()))
        assert len(caller.deltas) == count
        assert (caller.text, caller.token_ids, caller.end) == ("hello world 🙂", ids, ("length", None))


@for_each("is_streamed", [False, True])
@for_each("stop_token, reason", [(EOS, None), (ids_of("x")[0], ids_of("x")[0])])
def test_the_token_that_ends_an_answer_is_among_its_ids_and_not_in_its_text(is_streamed, stop_token, reason):
    ids = [*ids_of("hello"), stop_token]
    end = ended("stop", stop_reason=reason)
    messages = [step({1: [token_id]}) for token_id in ids[:-1]] + [step({1: ids[-1:]}, ended=[end])]
    ending = {"eos_token_id": [EOS], "stop_token_ids": [stop_token]}
    params = {"is_streamed": is_streamed, "skip_special_tokens": False, **ending}
    caller = Caller(step(opened=[opened(**params)]), *messages)
    assert (caller.text, caller.token_ids, caller.end) == ("hello", ids, ("stop", reason))
    shown = Caller(step(opened=[opened(**params, include_stop_str_in_output=True)]), *messages)
    assert shown.text == "hello" + DECODING.token(stop_token)


def test_special_tokens_within_an_answer_are_shown_on_demand_and_no_text_without_detokenize():
    ids = [*ids_of("a"), EOS, *ids_of("b")]
    for params, text in (({}, "ab"), ({"skip_special_tokens": False}, "a<|end|>b"), ({"detokenize": False}, "")):
        caller = Caller(step(opened=[opened(**params)]), *steps_of(ids, ended()))
        assert (caller.text, caller.token_ids) == (text, ids)


@for_each("is_streamed", [False, True])
def test_an_unfinished_character_shows_at_the_end_only(is_streamed):
    ids = ids_of("\U00010348")[:2]
    caller = Caller(step(opened=[opened(is_streamed=is_streamed)]), *steps_of(ids, ended()))
    assert caller.text == "\ufffd" and not any(delta.text for delta in caller.deltas[:-1])


@for_each("reason, code", [("abort", 499), ("error", 500)])
def test_a_request_that_fails_keeps_what_it_got(reason, code):
    end = ended(reason, error_code=code, error_msg="why")
    caller = Caller(step(opened=[opened(stop=["world!"])]), *steps_of(ids_of("hello wor"), end))
    last = caller.deltas[-1]
    assert (caller.text, last.finish_reason, last.error_code, last.error_msg) == ("hello wor", reason, code, "why")
    caller = Caller(step(opened=[opened()], ended=[end]))  # while it waits
    assert (caller.text, caller.token_ids, caller.end) == ("", [], (reason, None))


def test_a_sequence_that_cannot_be_decoded_fails_alone_and_an_unknown_one_is_passed_over(monkeypatch):
    caller = Caller(step(opened=[opened(1, is_streamed=True), opened(2, is_streamed=True)]))
    broken = caller.detokenizer._sequences[1]._decoder
    feed = type(broken).feed
    monkeypatch.setattr(
        type(broken), "feed", lambda decoder, ids: feed(decoder, ids if decoder is not broken else [None])
    )
    deltas, aborted = caller.detokenizer.feed(step({1: ids_of("a"), 2: ids_of("b")}))
    assert [(delta.sequence_id, delta.text, delta.error_code) for delta in deltas] == [(1, "", 500), (2, "b", 200)]
    assert aborted == [1]
    unknown = step({7: [1]}, ended=[SequenceEnded(7, "length")], resumed=[SequenceResumed(7, 1.0, 1)])
    assert caller.detokenizer.feed(unknown) == ([], [])


# --- log-probabilities and times --------------------------------------------------------------------------------------


def logprobs(count, *, is_prompt=False, first=0):
    width = 2
    ranks = range(first, first + count)
    floats = array("f", [-1.0] * count * width).tobytes()
    return Logprobs(1, is_prompt, width, column([5] * count * width), floats, column(ranks))


def test_log_probabilities_come_with_their_tokens_and_are_cut_where_the_ids_are():
    ids = ids_of("hello world and more")
    messages = [step({1: [token_id]}, logprobs=[logprobs(1, first=at)]) for at, token_id in enumerate(ids)]
    caller = Caller(step(opened=[opened(logprobs=1)]), *messages, step(ended=[ended()]))
    assert [values(part.ranks)[0] for part in caller.deltas[-1].logprobs] == list(range(len(ids)))
    start = step(opened=[opened(logprobs=1, stop=["world"])], logprobs=[logprobs(2, is_prompt=True)])
    caller = Caller(start, step({1: ids}, logprobs=[logprobs(len(ids))]))
    prompt, answer = caller.deltas[-1].logprobs
    kept = len(caller.token_ids)
    assert kept < len(ids) and prompt.is_prompt and len(prompt.ranks) == 2 * 4
    assert list(values(answer.ranks)) == list(range(kept))
    assert len(answer.token_ids) == len(answer.logprobs) == 4 * 2 * kept
    # Those of a prompt may come before its sequence is opened. Nothing of it is remembered once it has ended.
    caller = Caller(
        step(logprobs=[logprobs(2, is_prompt=True)]),
        step({1: ids_of("a")}, opened=[opened(prompt_logprobs=1)], logprobs=[logprobs(1, is_prompt=True, first=2)]),
        step({2: ids_of("a")}, opened=[opened(2, stop=["a"])]),
        step(ended=[ended()]),
    )
    assert [list(values(part.ranks)) for part in caller.deltas[-1].logprobs] == [[0, 1], [2]]
    assert not caller.detokenizer._sequences and not caller.detokenizer._early_logprobs


def test_times_are_gathered_until_the_end():
    before = time.time()
    caller = Caller(
        step(opened=[opened()]),
        step({1: ids_of("hello")[:1]}, forward_time=0.25),
        step(resumed=[SequenceResumed(1, 2.0, 1)]),
        step({1: ids_of("hello")[1:]}, forward_time=0.25, ended=[ended()]),
    )
    timing = caller.deltas[-1].timing
    assert (timing.arrival_time, timing.inference_start_time) == (100.0, 101.0)
    assert (timing.forward_time, timing.preemptions) == (0.5 + 0.25 + 2.0 + 0.25, 1)
    assert before <= timing.first_token_time <= timing.end_time <= time.time()
    assert caller.deltas[-1].num_cached == 2
