"""JSON that comes in and that goes out: neither takes memory or time without a bound.

What a body would take to decode is known before: in memory never less than it does, and in time bounded. An answer that
is written while it is sent is what it would have been at once.
"""

import json
import time
import tracemalloc
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.answers.logprobs import (
    PackedPositions,
    Section,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from penstock.frontend.http.answers.long_json import PIECE_BYTES, LongJson
from penstock.frontend.http.operations import OPERATIONS
from penstock.frontend.http.requests.decoding import Outline, check_levels, decoded
from penstock.frontend.http.schemas.chat import ChatRequest
from penstock.frontend.http.schemas.completions import CompletionRequest
from penstock.protocol.messages import Logprobs
from penstock.protocol.wire import column

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=20), inner, max_size=8),
    max_leaves=60,
)


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


STRUCT = 2048  # bytes of a request without values, which nobody counts


def held_bytes(body: bytes, kind: Any) -> int:
    """What the decoded value takes, as the allocator counts it."""
    msgspec.json.decode(body, type=kind)  # what is kept of the type and of short names is nobody's
    with traced():
        found = msgspec.json.decode(body, type=kind)
        return tracemalloc.get_traced_memory()[0] if found is not None else 0


@given(VALUES, st.booleans())
@settings(max_examples=25)
def test_a_random_body_takes_no_more_than_was_said(value, is_ascii):
    body = json.dumps({"prompt": "a", "metadata": {"a": value}}, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    try:
        held = held_bytes(body, CompletionRequest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert held <= Outline.of(body).decoded_bytes + STRUCT


def rows(item: bytes, number: int) -> bytes:
    return b",".join([item] * number)


LARGE = {
    "ids": b'{"prompt": [' + rows(b"1234567", 50_000) + b"]}",
    "lists of ids": b'{"prompt": [' + rows(b"[12345]", 15_000) + b"]}",
    "texts": b'{"prompt": [' + rows(b'"abcdefgh"', 15_000) + b"]}",
    "a long text": b'{"prompt": "' + b"a" * 500_000 + b'"}',
    "a wide text": b'{"prompt": "' + "😀".encode() + b"a" * 500_000 + b'"}',
    "an escaped wide text": b'{"prompt": "\\ud83d\\ude00' + b"a" * 500_000 + b'"}',
    "Chinese": b'{"prompt": "' + "中".encode() * 150_000 + b'"}',
    "escapes": b'{"prompt": "' + b"\\u4e2d" * 75_000 + b'"}',
    "empty objects": b'{"prompt": "a", "metadata": {"a": [' + rows(b"{}", 15_000) + b"]}}",
    "objects": b'{"prompt": "a", "metadata": {"a": [' + rows(b'{"b":1.5}', 15_000) + b"]}}",
    "empty lists": b'{"prompt": "a", "metadata": {"a": [' + rows(b"[]", 15_000) + b"]}}",
    "deep lists": b'{"prompt": "a", "metadata": {"a": [' + rows(b"[" * 30 + b"]" * 30, 500) + b"]}}",
    "names": b'{"prompt": "a", "metadata": {' + b",".join(b'"%x":1' % i for i in range(15_000)) + b"}}",
    "biases": b'{"prompt": "a", "logit_bias": {' + b",".join(b'"%d":1.5' % i for i in range(15_000)) + b"}}",
}


@for_each("name", LARGE)
def test_a_large_body_takes_no_more_than_was_said_and_not_far_less_and_is_decoded_in_a_moment(name):
    """The bound of processor time is for a slow machine: nothing here takes more than a tenth of it."""
    body = LARGE[name]
    said, held = Outline.of(body).decoded_bytes, held_bytes(body, CompletionRequest)
    assert held <= said + STRUCT and said <= 6 * held, (held, said)
    start = time.thread_time()
    Outline.of(body).check()
    decoded(body, CompletionRequest)
    assert time.thread_time() - start < 2


@for_each("number", [b"8.5e-324", b"2.2250738585072011e-308", b"9007199254740993.0", b"1e23",
                                    b"0." + b"0" * 300 + b"85", b"1" * 400, b"1E-5"])  # fmt: skip
def test_numbers_that_take_long_are_counted_before_they_are_read(number):
    """Fifteen seconds went into eight megabytes of them, in which nothing else ran."""
    body = b'{"prompt": "a", "metadata": {"a": [' + rows(number, 900_000 // len(number) + 2_100) + b"]}}"
    with pytest.raises(ApiError, match="numbers that have an exponent or 17 digits") as refused:
        Outline.of(body).check()
    assert refused.value.status == 413
    text = json.dumps({"prompt": body.decode()}).encode()
    Outline.of(text).check()  # in a text they are none


def test_long_lists_of_plain_values_are_not_gone_through_and_messages_take_as_much_as_was_said():
    check_levels("prompt", [1, "a", None, 1.5] * 100_000)
    with pytest.raises(ApiError, match="64 levels"):
        value: Any = 1
        for _ in range(70):
            value = [1, "a", {"b": value}]
        check_levels("prompt", value)
    text = 'What is the sum of these, and why? "Quoted", {braced}, [1, 2, 3]: all of it is text.\n' * 50
    body = json.dumps({"messages": [{"role": "user", "content": text}] * 20}).encode()
    assert held_bytes(body, ChatRequest) <= Outline.of(body).decoded_bytes < 1.5 * len(body)


@for_each("half", [rb"\ud800", rb"a\ud800b", rb"\udc00", rb"\uD800\uD800", rb"\ud83d\u0041", rb"\\\ud83d\ude00\udFFF",
                   rb"\n\"\ud800"])  # fmt: skip
def test_half_a_surrogate_pair_is_told_with_its_place(half):
    for body in (b'{"prompt": "' + half + b'"}', b'{"prompt": "a", "' + half + b'": 1}'):
        with pytest.raises(ApiError, match="half a surrogate pair") as raised:
            decoded(body, CompletionRequest)
        place = int(str(raised.value).partition("at byte ")[2].partition(",")[0])
        assert body[place : place + 6].decode() in str(raised.value) and body[place : place + 3].lower() == rb"\ud"


@given(st.text(max_size=40))
@settings(max_examples=50)
def test_no_whole_character_is_taken_for_a_half(text):
    whole = json.dumps(text.encode("utf-8", "ignore").decode())[1:-1]
    for body in (f'{{"prompt": "{whole}', f'{{"prompt": "{whole}" nonsense'):
        with pytest.raises(ApiError, match="not JSON"):
            decoded(body.encode(), CompletionRequest)


def test_the_first_byte_that_is_not_utf_8_is_told():
    for text in ('{"prompt": "é, "}', '{"é": 1}', "é", '{"prompt": "é'):
        with pytest.raises(ApiError, match=r"not UTF-8, .* the byte 0xe9 .* Encode it as UTF-8"):
            decoded(text.encode("latin-1") + b" ", CompletionRequest)


# --- answers ---------------------------------------------------------------------------------------------------------


class Body(msgspec.Struct):
    name: str
    first: Any
    rest: Any
    last: int = 7


@settings(max_examples=50)
@given(st.text(), st.lists(st.text() | st.integers()), st.lists(st.lists(st.text(max_size=5)), max_size=6))
def test_lists_that_are_put_off_stand_where_they_belong(name, plain, nested):
    body = LongJson()
    inner = (Body("in", body.defer(iter(each)), None) for each in nested)
    told = b"".join(body.pieces(Body(name, body.defer(iter(plain)), body.defer(inner))))
    expected = Body(name, plain, [Body("in", each, None) for each in nested])
    assert json.loads(told) == json.loads(msgspec.json.encode(expected))


def test_many_entries_are_never_held_together():
    body = LongJson()
    with traced():
        longest = max(map(len, body.pieces(Body("a", body.defer(range(40_000)), []))))
        most = tracemalloc.get_traced_memory()[1]
    assert longest < PIECE_BYTES + 100 and most < 10 * PIECE_BYTES


def packed(num_parts: int = 2, positions: int = 3, width: int = 4) -> PackedPositions:
    count = positions * width
    floats = array("f", [-0.5 * (place + 1) for place in range(count)]).tobytes()
    starts = range(0, num_parts * count, count)
    ids = [column(range(start, start + count)) for start in starts]
    parts = [Logprobs(0, False, width, each, floats, column([1] * positions)) for each in ids]
    return PackedPositions(parts, lambda token: f"<{token}>")


def test_log_probabilities_of_a_chat_are_told_token_by_token():
    body = LongJson()
    told = json.loads(b"".join(body.pieces(chat_logprobs(packed(), 2, body))))
    assert [entry["token"] for entry in told["content"]] == ["<0>", "<4>", "<8>", "<12>", "<16>", "<20>"]
    assert told["content"][0] == {
        "token": "<0>", "logprob": -0.5, "bytes": list(b"<0>"),
        "top_logprobs": [
            {"token": "<0>", "logprob": -0.5, "bytes": list(b"<0>")},
            {"token": "<1>", "logprob": -1.0, "bytes": list(b"<1>")},
        ],
    }  # fmt: skip
    assert told["refusal"] is None


def test_those_of_a_completion_are_columns_and_those_of_its_prompt_come_first():
    body = LongJson()
    sections = [Section(packed(1), first_token="Once"), Section(packed(1), 100)]
    told = json.loads(b"".join(body.pieces(completion_logprobs(sections, 1, body))))
    assert told["tokens"] == ["Once", "<0>", "<4>", "<8>", "<0>", "<4>", "<8>"]
    assert told["token_logprobs"] == [None, -0.5, -2.5, -4.5, -0.5, -2.5, -4.5]
    assert told["top_logprobs"] == [None, *[{"<0>": -0.5}, {"<4>": -2.5}, {"<8>": -4.5}] * 2]
    assert told["text_offset"] == [0, 4, 7, 10, 100, 103, 106]
    body = LongJson()
    of_prompt = json.loads(b"".join(body.pieces(Body("a", prompt_logprobs(packed(1), body), None))))["first"]
    assert of_prompt[0] is None and list(of_prompt[1]) == ["0", "1", "2", "3"]
    assert of_prompt[2]["4"] == {"logprob": -2.5, "rank": 1, "decoded_token": "<4>"}


REQUIRED = {
    "model": "m",
    "messages": [],
    "max_tokens": 1,
    "prompt": "a",
    "input": "a",
    "query": "a",
    "documents": ["a"],
}


def test_a_name_that_is_no_utf_8_is_a_fault_of_the_body_on_every_path():
    for kind in {row.body for row in OPERATIONS if row.body and not row.is_upload}:
        given = {
            each.name: REQUIRED.get(each.encode_name, "a") for each in msgspec.structs.fields(kind) if each.required
        }
        for name in (rb"\ud800", b"\xff"):
            body = b'{"' + name + b'": 1, ' + msgspec.json.encode(given)[1:].replace(b"}", b', "user": null}')
            with pytest.raises(ApiError) as raised:
                decoded(body.replace(b", ,", b","), kind)
            assert raised.value.status == 400, (kind, raised.value)
