"""Texts that are more than a text, where prompts and parameters are sorted: what is theirs alone is left behind."""

from collections import UserString
from typing import Any

import pytest

from penstock import RequestError, SamplingParams
from penstock.frontend.requests.conversation_checks import check_conversation
from penstock.frontend.requests.prompts import parse_prompt, parse_prompts


class OddText(str):
    def __len__(self) -> int:
        raise RuntimeError("nobody counts these")

    def encode(self, *arguments: Any) -> bytes:
        raise RuntimeError("nor writes them")


class Pretender:
    """`isinstance` takes it for a text."""

    __class__ = str  # type: ignore[assignment]


def test_of_a_prompt_the_plain_text_is_taken():
    for prompt in (OddText("abc"), {"prompt": OddText("abc")}):
        parsed = parse_prompt(prompt, SamplingParams())
        assert (type(parsed.text), parsed.text, parsed.refusal) == (str, "abc", None)


def test_what_is_no_text_is_refused_in_a_sentence():
    for prompt in (Pretender(), {"prompt": Pretender()}, {"prompt": UserString("abc")}):
        parsed = parse_prompt(prompt, SamplingParams())
        assert parsed.text is None and parsed.refusal.endswith("."), prompt


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_strings_of_parameters_are_plain_ones(name):
    [text] = getattr(SamplingParams(**{name: [OddText("abc")]}), name)
    assert (type(text), text) == (str, "abc")
    for value in (UserString("abc"), [UserString("abc")], [Pretender()]):
        with pytest.raises(RequestError, match=f"{name}=.*must be"):
            SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "message, fault",
    [
        ({"content": "a"}, "this one has no role"),
        ({"role": 3, "content": "a"}, "the role of this one is int"),
        ("a", "this one is str"),
        ({"role": "user", "content": [{"type": "text"}]}, "this one has no text"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "the text of this one is int"),
        ({"role": "user", "content": [b"a"]}, "this one is bytes"),
    ],
)
def test_a_message_or_part_without_its_text_is_told_what_it_lacks(message, fault):
    with pytest.raises(RequestError, match=f"; {fault}.$"):
        check_conversation([message])


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, "temperature", 3])
def test_what_can_be_no_parameters_at_all_is_refused_as_a_whole(params):
    with pytest.raises(RequestError, match=f"or one for each prompt, not {type(params).__name__}"):
        parse_prompts(["a"], params, SamplingParams())
