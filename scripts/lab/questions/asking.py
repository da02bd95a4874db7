"""Asks a model questions of every kind: through `LLM.chat`, greedily, in batches with the same tools."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from penstock import LLM, SamplingParams

_AT_ONCE = 256


class Question(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def expected(self) -> Any: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    @property
    def tools(self) -> list[Mapping[str, Any]] | None: ...
    @property
    def template_options(self) -> Mapping[str, Any]: ...
    def params(self) -> SamplingParams: ...
    def is_answered_by(self, text: str) -> bool: ...


def answers(llm: LLM, asked: Sequence[Question]) -> list[str]:
    """Greedy answers, in the questions' order."""
    found = [""] * len(asked)
    for numbers in _batches(asked):
        some = [asked[number] for number in numbers]
        outputs = llm.chat(
            [question.messages for question in some], [question.params() for question in some], use_tqdm=False,
            tools=some[0].tools, chat_template_kwargs=some[0].template_options,
        )  # fmt: skip
        for number, output in zip(numbers, outputs, strict=True):
            found[number] = output.outputs.text
    return found


def _batches(asked: Sequence[Question]) -> Iterator[list[int]]:
    def key(number: int) -> str:
        return json.dumps([asked[number].tools, dict(asked[number].template_options)])

    for _, group in groupby(sorted(range(len(asked)), key=key), key=key):
        numbers = list(group)
        yield from (numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE))


def visible(text: str) -> str:
    """The answer behind the thoughts."""
    return text.rpartition("</think>")[2].strip()


def value_of(text: str) -> Any:
    """The value of a JSON text; None if it isn't JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
