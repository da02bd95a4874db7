"""JSON that is written while it is sent is what it would have been at once."""

import json
import tracemalloc
from array import array
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.http.answers.logprobs import (
    PackedPositions,
    Section,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from penstock.frontend.http.answers.long_json import PIECE_BYTES, LongJson
from penstock.protocol.messages import Logprobs, column


class Body(msgspec.Struct):
    name: str
    first: Any
    rest: Any
    last: int = 7


@given(st.text(), st.lists(st.text() | st.integers()), st.lists(st.lists(st.text(max_size=5)), max_size=6))
def test_lists_that_are_put_off_stand_where_they_belong(name, plain, nested):
    body = LongJson()
    inner = (Body("in", body.defer(iter(each)), None) for each in nested)
    told = b"".join(body.pieces(Body(name, body.defer(iter(plain)), body.defer(inner))))
    expected = Body(name, plain, [Body("in", each, None) for each in nested])
    assert json.loads(told) == json.loads(msgspec.json.encode(expected))


def test_many_entries_are_never_held_together():
    body = LongJson()
    pieces = body.pieces(Body("a", body.defer(range(60_000)), []))
    tracemalloc.start()
    longest = max(map(len, pieces))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert longest < PIECE_BYTES + 100 and most < 10 * PIECE_BYTES


def packed(num_parts: int = 2, positions: int = 3, width: int = 4) -> PackedPositions:
    count = positions * width
    parts = [
        Logprobs(
            0, False, width, column(range(start, start + count)), floats(count), column([1] * positions)
        )
        for start in range(0, num_parts * count, count)
    ]
    return PackedPositions(parts, lambda token: f"<{token}>")


def floats(count: int) -> bytes:
    return array("f", [-0.5 * (place + 1) for place in range(count)]).tobytes()


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
