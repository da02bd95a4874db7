"""Texts that are more than a text, where prompts and parameters are sorted: what is theirs alone is left behind."""

from collections import UserString
from typing import Any

import pytest

from penstock import RequestError, SamplingParams
from penstock.frontend.requests.prompts import as_asked


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
        asked = as_asked(prompt, SamplingParams())
        assert (type(asked.text), asked.text, asked.refusal) == (str, "abc", None)


def test_what_is_no_text_is_refused_in_a_sentence():
    for prompt in (Pretender(), {"prompt": Pretender()}, {"prompt": UserString("abc")}):
        asked = as_asked(prompt, SamplingParams())
        assert asked.text is None and asked.refusal.endswith("."), prompt


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_strings_of_parameters_are_plain_ones(name):
    [text] = getattr(SamplingParams(**{name: [OddText("abc")]}), name)
    assert (type(text), text) == (str, "abc")
    for value in (UserString("abc"), [UserString("abc")], [Pretender()]):
        with pytest.raises(RequestError, match=f"{name}=.*must be"):
            SamplingParams(**{name: value})
