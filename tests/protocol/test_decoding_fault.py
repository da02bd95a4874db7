"""A value in a wrong form is refused in our own words: the field, what was given, what is wanted."""

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.requests import decoding
from penstock.frontend.http.requests.decoding import decoded
from penstock.frontend.http.schemas.chat import ChatRequest
from penstock.frontend.http.schemas.completions import CompletionRequest
from penstock.frontend.http.schemas.responses import ResponsesRequest

QUESTION = {"messages": [{"role": "user", "content": "one"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def refusal(body: object, kind: type[msgspec.Struct] = ChatRequest) -> tuple[str, str | None]:
    with pytest.raises(ApiError) as refused:
        decoded(msgspec.json.encode(body), kind)
    return str(refused.value), refused.value.param


@for_each("field, value, sentence", [
    ("max_tokens", "5", "max_tokens='5': must be a whole number, 1 or more."),
    ("max_tokens", 0, "max_tokens=0: must be a whole number, 1 or more."),
    ("max_tokens", 2**31, "max_tokens=2147483648: must be a whole number from 1 to 2147483647."),
    ("temperature", True, "temperature=true: must be a number from 0 to 1000."),
    ("top_p", 0, "top_p=0: must be a number above 0 and at most 1."),
    ("stream", "true", "stream='true': must be true or false."),
    ("stop", {}, "stop must be text or a list, not an object."),
    ("stop", ["a", None], "stop[1]=null: must be text."),
    ("stop_token_ids", [1] * 1025, "stop_token_ids must be a list of at most 1024 items."),
    ("logit_bias", {"5": "x"}, "A value of logit_bias must be a number from -100 to 100, not text."),
    ("messages", [], "messages must be a list of 1 or more items."),
    ("messages", ["one"], "messages[0]='one': must be an object."),
    ("messages", [{}], "messages[0] needs role, which must be text of 1 to 64 characters."),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content=5: must be text or a list."),
    ("tool_choice", 5, "tool_choice=5: must be an object or one of auto, none, required."),
])  # fmt: skip
def test_what_is_wanted_is_said_with_the_value(field, value, sentence):
    told, param = refusal({**QUESTION, field: value})
    assert told == sentence and param.startswith(field)


def test_so_is_what_is_no_object_or_lacks_a_field_and_a_long_body_is_refused_without_its_value():
    assert refusal([]) == ("The body must be an object, not a list.", None)
    assert refusal({}, CompletionRequest) == ("The body needs prompt, which must be text or a list.", "prompt")
    told, _ = refusal({"max_tokens": "5", "messages": [{"role": "user", "content": "x" * decoding.MOST_SHOWN_BYTES}]})
    assert told == "max_tokens must be a whole number, 1 or more, not text."


@settings(max_examples=40)
@given(st.sampled_from([ChatRequest, CompletionRequest, ResponsesRequest]), st.data(), JSON)
def test_no_refusal_is_in_the_decoders_words(kind, data, value):
    name = data.draw(st.sampled_from(kind.__struct_fields__))
    body = {**QUESTION, name: value} if kind is ChatRequest else {name: value}
    told = ""
    try:
        decoded(msgspec.json.encode(body), kind)
    except ApiError as error:
        told = str(error)
    assert "Expected" not in told and "got " not in told, told
