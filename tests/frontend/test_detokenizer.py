"""Token ids become text: whole characters, the same however they were cut, and what a caller gets of them.

The detokenizer has the last word: what a caller gets depends on the request alone.
"""

import random
import time
from array import array
from functools import cache

from builders.cases import for_each
from builders.detokenized import DECODING, EOS, Caller, ended, ids_of, opened, step, steps_of
from builders.tokenizer_kinds import KINDS, TEXTS
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders

from penstock.frontend.text.incremental import Decoding
from penstock.protocol.messages import Logprobs, SequenceEnded, SequenceResumed
from penstock.protocol.wire import column, values, wide_column

DECODINGS = {kind: Decoding(make()) for kind, make in KINDS.items()}
kinds = st.sampled_from(sorted(KINDS))


def pieces_of(decoder, token_ids, cuts=None):
    """The deltas when the ids arrive one by one, or in pieces of the lengths in `cuts`."""
    cuts = cuts or [1] * len(token_ids)
    deltas, start = [], 0
    for length in [*cuts, len(token_ids)]:
        deltas.append(decoder.feed(token_ids[start : start + length]))
        start += length
    return [*deltas, decoder.flush()]


@given(kinds, st.data(), st.booleans())
def test_deltas_joined_are_the_text_of_all_ids_at_once(kind, data, skip_special_tokens):
    decoding = DECODINGS[kind]
    last = decoding.backend.get_vocab_size() + 3  # ids without a token among them
    token_ids = data.draw(st.lists(st.integers(0, last), max_size=40))
    context = data.draw(st.lists(st.integers(0, last), max_size=6))
    cuts = data.draw(st.lists(st.integers(0, 5), max_size=20))

    def text(cuts):
        decoder = decoding.decoder(context, skip_special_tokens=skip_special_tokens)
        return "".join(pieces_of(decoder, token_ids, cuts))

    assert text(cuts) == text([len(token_ids)]) == text(None)


@given(st.lists(st.integers(0, 420), max_size=30), st.booleans())
def test_any_ids_of_a_byte_level_tokenizer_give_the_librarys_text(token_ids, skip_special_tokens):
    decoding = DECODINGS["byte_level"]
    decoder = decoding.decoder(skip_special_tokens=skip_special_tokens)
    expected = decoding.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
    assert "".join(pieces_of(decoder, token_ids)) == expected


# A decoder with byte fallback as its steps are written for Llama 2, for Gemma, and elsewhere; the last is no table.
BYTE_FALLBACKS = {
    "as Llama": [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)],
    "as Gemma": [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()],
    "bytes first": [decoders.ByteFallback(), decoders.Metaspace()],
    "bytes first, fused": [decoders.ByteFallback(), decoders.Replace("▁", " "), decoders.Fuse()],
    "by a pattern": [decoders.Replace(Regex("▁"), " "), decoders.ByteFallback(), decoders.Fuse()],
}
BYTES = {byte: KINDS["byte_fallback"]().token_to_id(f"<0x{byte:02X}>") for byte in range(256)}


@cache
def with_decoder(name):
    backend = Tokenizer.from_str(KINDS["byte_fallback"]().to_str())
    backend.decoder = decoders.Sequence(BYTE_FALLBACKS[name])
    return Decoding(backend)


@for_each("name", BYTE_FALLBACKS)
def test_any_ids_give_the_same_text_in_a_stream_in_one_piece_and_decoded(name):
    decoding = with_decoder(name)
    draw = random.Random(name)
    # Bytes of characters, so that many are whole, many broken, and many in the midst of others.
    pool = [BYTES[byte] for byte in "🙂é你 a▁".encode()] * 3 + list(range(decoding.backend.get_vocab_size() + 2))
    for _ in range(400):
        token_ids = draw.choices(pool, k=draw.randint(0, 12))
        for skip in (True, False):
            cuts = [draw.randint(0, 3) for _ in token_ids]
            streamed = "".join(pieces_of(decoding.decoder(skip_special_tokens=skip), token_ids, cuts))
            whole = decoding.decoder(skip_special_tokens=skip)
            assert streamed == whole.feed(token_ids) + whole.flush(), token_ids
            assert streamed == decoding.text(token_ids, skip_special_tokens=skip), token_ids


@given(st.sampled_from([name for name in BYTE_FALLBACKS if name != "by a pattern"]), st.binary(max_size=12))
def test_broken_bytes_are_replaced_as_unicode_recommends(name, written):
    decoding = with_decoder(name)
    text = decoding.text([5, *map(BYTES.get, written)])
    assert text == decoding.text([5]) + written.decode("utf-8", "replace")


@for_each("name", [*BYTE_FALLBACKS, *KINDS])
def test_whole_characters_are_decoded_as_the_library_does_in_a_stream_too(name):
    decoding = with_decoder(name) if name in BYTE_FALLBACKS else DECODINGS[name]
    for text in TEXTS:
        token_ids = decoding.backend.encode(text).ids
        expected = decoding.backend.decode(token_ids)
        assert decoding.text(token_ids) == expected, text
        assert "".join(pieces_of(decoding.decoder(), token_ids)) == expected, text


@given(st.sampled_from(["byte_level", "byte_fallback"]), st.text(max_size=30))
def test_no_delta_holds_half_a_character(kind, text):
    decoding = DECODINGS[kind]
    text = text.replace("\ufffd", "")
    decoder = decoding.decoder()
    deltas = pieces_of(decoder, decoding.backend.encode(text, add_special_tokens=False).ids)
    assert not any("\ufffd" in delta for delta in deltas)


def test_the_last_delta_has_the_counts_of_drafts_if_a_stop_string_ends_it_too():
    end, counts = ended(num_draft_tokens=5, num_accepted_tokens=3), wide_column([1, 4, 2])
    whole = Caller(step(opened=[opened()]), *steps_of(ids_of("a b"), end))
    cut = Caller(step(opened=[opened(stop=["b"])]), step({1: ids_of("a b")}, drafts=counts))
    for caller, reason, expected in ((whole, "length", (5, 3)), (cut, "stop", (4, 2))):
        timing = caller.deltas[-1].timing
        assert (caller.end[0], timing.num_draft_tokens, timing.num_accepted_tokens) == (reason, *expected)


def test_an_answer_goes_on_from_its_prompt_within_a_character_or_with_a_space():
    decoding = DECODINGS["byte_level"]
    token_ids = decoding.backend.encode("\U00010348").ids
    assert len(token_ids) == 4, "the corpus has no such character, so it is single bytes"
    assert decoding.decoder(token_ids[:2]).feed(token_ids[2:]) == "\U00010348"
    assert decoding.decoder(token_ids[:2]).feed(decoding.backend.encode("hello").ids) == "hello"
    assert decoding.decoder(token_ids[:2]).flush() == ""
    decoding = DECODINGS["byte_fallback"]
    prompt, answer = (decoding.backend.encode(word, add_special_tokens=False).ids for word in ("hello", "world"))
    assert decoding.decoder(prompt).feed(answer) == " world"
    assert decoding.decoder([1]).feed(answer) == "world", "a prompt of nothing but the BOS shows no text before it"
    assert decoding.decoder([1], skip_special_tokens=False).feed(answer) == " world"


def test_special_tokens_are_left_out_unless_asked_for_and_other_added_ones_are_text():
    for kind, token in (("byte_level", "<|end|>"), ("word_piece", "[SEP]")):
        decoding = DECODINGS[kind]
        token_id = decoding.backend.token_to_id(token)
        assert decoding.decoder().feed([token_id]) == ""
        assert decoding.decoder(skip_special_tokens=False).feed([token_id]) == token
    token_ids = [decoding.backend.token_to_id(token) for token in ("[SEP]", "[CLS]")]
    for spaces, expected in ((True, "[SEP] [CLS]"), (False, "[SEP][CLS]")):
        decoder = decoding.decoder(skip_special_tokens=False, spaces_between_special_tokens=spaces)
        assert "".join(pieces_of(decoder, token_ids)) == expected
    decoding = DECODINGS["byte_level"]
    assert decoding.decoder().feed(decoding.backend.encode("<think>hello").ids) == "<think>hello"


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
