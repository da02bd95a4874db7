"""Streaming text is whole characters, and the same text however it was cut."""

import random
from functools import cache

from builders.cases import for_each
from builders.tokenizer_kinds import KINDS, TEXTS
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders

from penstock.frontend.text.incremental import Decoding

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


def test_an_emoji_arrives_with_its_last_byte_and_without_it_is_a_replacement_character():
    decoding = DECODINGS["byte_fallback"]
    token_ids = [BYTES[byte] for byte in "🙂".encode()]
    assert pieces_of(decoding.decoder(), token_ids) == ["", "", "", "🙂", "", ""]
    assert "".join(pieces_of(decoding.decoder(), token_ids[:3])) == "\ufffd"


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
