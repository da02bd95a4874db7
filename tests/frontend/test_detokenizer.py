"""The detokenizer has the last word: what a caller gets depends on the request alone."""

import subprocess
import sys
import time
from array import array

import pytest
from builders.tokenizer_kinds import KINDS
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.text.detokenizer import Detokenizer
from penstock.frontend.text.incremental import Decoding
from penstock.protocol.messages import (
    Logprobs,
    SequenceEnded,
    SequenceOpened,
    SequenceResumed,
    Tokens,
    column,
    values,
    wide_column,
)
from penstock.protocol.parameters.sampling import SamplingParams

DECODING = Decoding(KINDS["byte_level"]())
EOS = DECODING.backend.token_to_id("<|end|>")


def ids_of(text):
    return DECODING.backend.encode(text, add_special_tokens=False).ids


def opened(sequence=1, *, is_streamed=False, **params):
    return SequenceOpened(
        sequence_id=sequence,
        num_prompt=3,
        prompt_tail=column(ids_of("a prompt")),
        params=SamplingParams(**params),
        is_streamed=is_streamed,
        num_cached=2,
        arrival_time=100.0,
        inference_start_time=101.0,
        forward_time=0.5,
    )


def step(rows=None, **parts):
    """One message; `rows` is {sequence: token ids}."""
    rows = rows or {}
    return Tokens(
        sequence_ids=wide_column(rows),
        num_tokens=column(len(ids) for ids in rows.values()),
        token_ids=column(token_id for ids in rows.values() for token_id in ids),
        **parts,
    )


class Caller:
    """Feeds messages and joins the deltas of sequence 1, as the front end does."""

    def __init__(self, *messages):
        self.detokenizer = Detokenizer(DECODING)
        self.deltas, self.aborted = [], []
        for message in messages:
            deltas, aborted = self.detokenizer.feed(message)
            self.deltas += deltas
            self.aborted += aborted

    @property
    def text(self):
        return "".join(delta.text for delta in self.deltas)

    @property
    def token_ids(self):
        return [token_id for delta in self.deltas for token_id in values(delta.token_ids)]

    @property
    def end(self):
        assert [delta for delta in self.deltas if delta.finish_reason] == self.deltas[-1:], "one end, the last"
        last = self.deltas[-1]
        return last.finish_reason, last.stop_reason


def steps_of(token_ids, end, sizes=None):
    """The ids in steps of the given sizes, the end with the last of them."""
    messages, start = [], 0
    for size in sizes or [1] * len(token_ids):
        messages.append(step({1: token_ids[start : start + size]}))
        start += size
    messages.append(step({1: token_ids[start:]} if start < len(token_ids) else None, ended=[end]))
    return messages


def ended(reason="length", **parts):
    return SequenceEnded(1, reason, **parts)


def test_the_process_needs_neither_torch_nor_transformers():
    code = (
        "import sys, penstock.frontend.text.detokenizer;"
        "print(sorted({'torch', 'numpy', 'transformers', 'jinja2', 'huggingface_hub'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_request_that_is_not_streamed_gets_one_delta_at_its_end():
    ids = ids_of("hello world")
    caller = Caller(step(opened=[opened()]), *steps_of(ids, ended()))
    assert len(caller.deltas) == 1
    assert (caller.text, caller.token_ids, caller.end) == ("hello world", ids, ("length", None))


def test_a_streamed_request_gets_a_delta_a_step():
    ids = ids_of("hello world 🙂")
    caller = Caller(step(opened=[opened(is_streamed=True)]), *steps_of(ids, ended()))
    assert len(caller.deltas) == len(ids) + 1
    assert (caller.text, caller.token_ids, caller.end) == ("hello world 🙂", ids, ("length", None))


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("stop_token, reason", [(EOS, None), (ids_of("x")[0], ids_of("x")[0])])
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


def test_special_tokens_within_an_answer_are_shown_on_demand():
    ids = [*ids_of("a"), EOS, *ids_of("b")]
    assert Caller(step(opened=[opened()]), *steps_of(ids, ended())).text == "ab"
    assert Caller(step(opened=[opened(skip_special_tokens=False)]), *steps_of(ids, ended())).text == "a<|end|>b"


def test_without_detokenize_there_are_ids_and_no_text():
    caller = Caller(step(opened=[opened(detokenize=False)]), *steps_of(ids_of("hello"), ended()))
    assert (caller.text, caller.token_ids) == ("", ids_of("hello"))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_unfinished_character_shows_at_the_end_only(is_streamed):
    ids = ids_of("\U00010348")[:2]
    caller = Caller(step(opened=[opened(is_streamed=is_streamed)]), *steps_of(ids, ended()))
    assert caller.text == "\ufffd" and not any(delta.text for delta in caller.deltas[:-1])


@pytest.mark.parametrize("reason, code", [("abort", 499), ("error", 500)])
def test_a_request_that_fails_keeps_what_it_got(reason, code):
    end = ended(reason, error_code=code, error_msg="why")
    caller = Caller(step(opened=[opened(stop=["world!"])]), *steps_of(ids_of("hello wor"), end))
    last = caller.deltas[-1]
    assert (caller.text, last.finish_reason, last.error_code, last.error_msg) == ("hello wor", reason, code, "why")


def test_a_request_that_ends_while_it_waits_is_opened_and_ended_in_one_message():
    caller = Caller(step(opened=[opened()], ended=[ended("abort", error_code=499)]))
    assert (caller.text, caller.token_ids, caller.end) == ("", [], ("abort", None))


def test_news_of_an_unknown_sequence_is_dropped():
    caller = Caller(step({7: [1]}, ended=[SequenceEnded(7, "length")], resumed=[SequenceResumed(7, 1.0, 1)]))
    assert (caller.deltas, caller.aborted) == ([], [])


def test_a_sequence_that_cannot_be_decoded_fails_alone(monkeypatch):
    caller = Caller(step(opened=[opened(1, is_streamed=True), opened(2, is_streamed=True)]))
    broken = caller.detokenizer._sequences[1]._decoder
    monkeypatch.setattr(type(broken), "feed", _failing_for(broken, type(broken).feed))
    deltas, aborted = caller.detokenizer.feed(step({1: ids_of("a"), 2: ids_of("b")}))
    assert [(delta.sequence_id, delta.text, delta.error_code) for delta in deltas] == [(1, "", 500), (2, "b", 200)]
    assert aborted == [1]


def _failing_for(broken, feed):
    def failing(decoder, token_ids):
        if decoder is broken:
            raise RuntimeError("broken")
        return feed(decoder, token_ids)

    return failing


# --- stop strings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_string_cuts_text_and_ids_and_aborts_the_engine(is_streamed):
    ids = ids_of("hello world stop more")
    caller = Caller(step(opened=[opened(is_streamed=is_streamed, stop=["rld s"])]), *steps_of(ids, ended()))
    assert (caller.text, caller.end) == ("hello wo", ("stop", "rld s"))
    assert "rld s" in DECODING.backend.decode(caller.token_ids)
    assert "rld s" not in DECODING.backend.decode(caller.token_ids[:-1]), "no token behind the one that completed it"
    assert caller.aborted == [1], "and the engine's own end, which came later, changes nothing"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_stop_string_is_kept_on_demand(is_streamed):
    params = {"is_streamed": is_streamed, "stop": ["wor"], "include_stop_str_in_output": True}
    assert Caller(step(opened=[opened(**params)]), *steps_of(ids_of("hello world"), ended())).text == "hello wor"


@pytest.mark.parametrize("is_streamed", [False, True])
@given(sizes=st.lists(st.integers(1, 6), max_size=12))
def test_an_answer_does_not_depend_on_how_its_tokens_came(is_streamed, sizes):
    ids = ids_of("The quick brown fox. It doesn't mind. 世界 Human: hello")
    start = step(opened=[opened(is_streamed=is_streamed, stop=["Human:", "界 H"])])
    one, other = Caller(start, *steps_of(ids, ended())), Caller(start, *steps_of(ids, ended(), sizes))
    assert (one.text, one.token_ids, one.end) == (other.text, other.token_ids, other.end)
    assert one.end == ("stop", "界 H")


def test_an_end_in_the_same_step_as_a_stop_string_is_no_abort():
    ids = ids_of("hello world")
    caller = Caller(step(opened=[opened(stop=["world"])]), step({1: ids}, ended=[ended()]))
    assert (caller.text, caller.end, caller.aborted) == ("hello ", ("stop", "world"), [])


def test_an_eos_behind_a_stop_string_is_not_reached():
    ids = [*ids_of("hello world"), EOS]
    caller = Caller(step(opened=[opened(stop=["world"])]), step({1: ids}, ended=[ended("stop")]))
    assert (caller.end, EOS in caller.token_ids) == (("stop", "world"), False)


def test_stop_strings_are_not_looked_for_within_min_tokens():
    ids = ids_of("stop hello stop hello")
    caller = Caller(step(opened=[opened(stop=["stop"], min_tokens=len(ids_of("stop")))]), *steps_of(ids, ended()))
    assert (caller.text, caller.end) == ("stop hello ", ("stop", "stop"))


# --- stop words -------------------------------------------------------------------------------------------------------

ASSISTANT = ids_of(" assistant")  # three tokens: " ass", "ist", "ant"
WORLD = ids_of(" world")  # two
SMILE = ids_of("🙂")  # three, each a part of the character
STOPPED = [*ids_of("hello 🙂 world"), *ASSISTANT]


def stopped(ids, sizes=(), *, words=(ASSISTANT, [*WORLD, EOS]), reason="stop", is_streamed=False, **params):
    """What the caller gets if the engine ends the answer with the last of these ids."""
    messages, first = [step(opened=[opened(is_streamed=is_streamed, stop_words_ids=list(words), **params)])], 0
    for size in sizes:
        if first + size < len(ids):
            messages.append(step({1: ids[first : first + size]}))
            first += size
    stop_reason = ids[-1] if reason == "stop" else None
    return Caller(*messages, step({1: ids[first:]}, ended=[ended(reason, stop_reason=stop_reason)]))


SIZES = st.lists(st.integers(1, 4), max_size=12)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("stop", [None, ["@@never@@"], ["ant"], ["istant"], [" assistant"]], ids=str)
@given(sizes=SIZES)
def test_text_ends_before_a_stop_word_with_stop_strings_and_without(is_streamed, stop, sizes):
    caller = stopped(STOPPED, sizes, is_streamed=is_streamed, stop=stop)
    assert (caller.text, caller.token_ids, caller.end) == ("hello 🙂 world", STOPPED, ("stop", STOPPED[-1]))
    shown = ["".join(delta.text for delta in caller.deltas[:count]) for count in range(len(caller.deltas))]
    assert all("hello 🙂 world".startswith(text) for text in shown)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "stop, text, count", [("ssis", "hello 🙂 world a", -1), ("ld as", "hello 🙂 wor", -2), ("🙂 wor", "hello ", -4)]
)
@given(sizes=SIZES)
def test_a_stop_string_that_is_complete_within_a_stop_word_ends_the_answer_there(is_streamed, stop, text, count, sizes):
    caller = stopped(STOPPED, sizes, is_streamed=is_streamed, stop=[stop], logprobs=0)
    assert (caller.text, caller.token_ids, caller.end) == (text, STOPPED[:count], ("stop", stop))


@pytest.mark.parametrize("stop", [None, ["@@never@@"]])
@pytest.mark.parametrize("sizes", [(), [1] * 8])
def test_a_character_that_a_stop_word_breaks_off_is_no_part_of_the_word(stop, sizes):
    ids = [*ids_of("hello"), *SMILE]
    assert stopped(ids, sizes, words=[SMILE[1:]], stop=stop, is_streamed=True).text == "hello\ufffd"


@pytest.mark.parametrize("stop", [None, ["@@never@@"]])
def test_a_stop_word_that_has_begun_becomes_text_when_it_is_not_completed(stop):
    ids = [*ASSISTANT[:2], *ASSISTANT[:2]]
    caller = stopped(ids, [1] * 4, reason="length", is_streamed=True, stop=stop)
    assert [delta.text for delta in caller.deltas] == ["", "", " assist", " assist"]
    assert [list(values(delta.token_ids)) for delta in caller.deltas] == [[token_id] for token_id in ids]


def text_of(ids):
    decoder = DECODING.decoder(ids_of("a prompt"))
    return decoder.feed(ids), decoder.flush()


PIECES = st.sampled_from([*ids_of("hello"), *WORLD, *SMILE])


@given(
    ids=st.lists(PIECES, min_size=1, max_size=12),
    words=st.lists(st.lists(PIECES, min_size=2, max_size=4), min_size=1, max_size=3),
    stop=st.lists(st.sampled_from(["ll", "ohe", "o w", "🙂", "dhel", "@@"]), max_size=2),
    sizes=SIZES,
    is_streamed=st.booleans(),
)
def test_an_answer_ends_at_the_stop_word_or_string_that_is_complete_first(ids, words, stop, sizes, is_streamed):
    ends = [(end, word) for end in range(1, len(ids) + 1) for word in words if ids[:end][-len(word) :] == word]
    end = min(ends, default=(len(ids), []))[0]
    hidden = max((len(word) for at, word in ends if at == end), default=0)
    before = [text_of(ids[:count])[0] for count in range(end if hidden else end + 1)]
    expected = "".join(text_of(ids[: end - hidden])), ids[:end]
    for count, text in enumerate(before):
        if any(string in text for string in stop):
            _, start = min((text.find(each) + len(each), text.find(each)) for each in stop if each in text)
            expected = text[:start], ids[:count]
            break
    reason = "stop" if hidden else "length"
    caller = stopped(ids[:end], sizes, words=words, reason=reason, stop=stop or None, is_streamed=is_streamed)
    assert (caller.text, caller.token_ids) == expected


# --- log-probabilities and times --------------------------------------------------------------------------------------


def logprobs(count, *, is_prompt=False, first=0):
    width = 2
    ranks = range(first, first + count)
    floats = array("f", [-1.0] * count * width).tobytes()
    return Logprobs(1, is_prompt, width, column([5] * count * width), floats, column(ranks))


def test_log_probabilities_come_with_their_tokens():
    ids = ids_of("hello world")
    messages = [step({1: [token_id]}, logprobs=[logprobs(1, first=at)]) for at, token_id in enumerate(ids)]
    caller = Caller(step(opened=[opened(logprobs=1)]), *messages, step(ended=[ended()]))
    assert [values(part.ranks)[0] for part in caller.deltas[-1].logprobs] == list(range(len(ids)))


def test_log_probabilities_are_cut_where_the_ids_are():
    ids = ids_of("hello world and more")
    start = step(opened=[opened(logprobs=1, stop=["world"])], logprobs=[logprobs(2, is_prompt=True)])
    caller = Caller(start, step({1: ids}, logprobs=[logprobs(len(ids))]))
    prompt, answer = caller.deltas[-1].logprobs
    kept = len(caller.token_ids)
    assert kept < len(ids) and prompt.is_prompt and len(prompt.ranks) == 2 * 4
    assert list(values(answer.ranks)) == list(range(kept))
    assert len(answer.token_ids) == len(answer.logprobs) == 4 * 2 * kept


def test_log_probabilities_of_a_prompt_may_come_before_its_sequence_is_opened():
    caller = Caller(
        step(logprobs=[logprobs(2, is_prompt=True)]),
        step({1: ids_of("a")}, opened=[opened(prompt_logprobs=1)], logprobs=[logprobs(1, is_prompt=True, first=2)]),
        step(ended=[ended()]),
    )
    assert [list(values(part.ranks)) for part in caller.deltas[-1].logprobs] == [[0, 1], [2]]


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


def test_nothing_is_remembered_of_a_sequence_that_has_ended():
    caller = Caller(
        step(opened=[opened(1), opened(2, stop=["a"])]), step({1: [1], 2: ids_of("a")}), step(ended=[ended()])
    )
    assert not caller.detokenizer._sequences and not caller.detokenizer._early_logprobs
