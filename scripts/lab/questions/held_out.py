"""The held-out questions that pocket is measured by, by kind, and how an answer is judged.

They come from the training text's own generators, on the other side of their split: no operands, names or words of a
question here are in the training text; of what must be learnt by heart (facts, greetings) the phrasing is held out, of
invented tools the name. Four in ten are loosened (`text/wording.py`), of greetings seven; one in eight comes after 500
tokens and more of earlier turns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock import SamplingParams

from ..text.example import LETTER_GAP, Draw, Example, after
from ..text.mixture import KINDS, earlier_turns, held_out
from .asking import value_of, visible

PER_KIND = 170
# About 25 tokens a turn; the turns of a question in eight.
LONG_EVERY, LONG_TURNS = 8, 26
# Sums to two digits come half with and half without thinking allowed: they need none.
_SILENT_KINDS = ("small sums",)


@dataclass(frozen=True)
class Question:
    kind: str
    key: str
    messages: list[dict[str, Any]]
    tools: list[Mapping[str, Any]] | None
    expected: str
    judged: str
    needs_thoughts: bool
    template_options: Mapping[str, Any]

    def silently(self) -> "Question":
        """The same with no thoughts allowed."""
        return replace(self, template_options={"enable_thinking": False})

    def is_answered_by(self, text: str) -> bool:
        """Whether this text, thoughts and all, is the right answer."""
        answer = visible(text)
        if self.judged == "exact":
            return answer == self.expected
        return _value(answer) == _value(self.expected)

    def params(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=200)


def questions(per_kind: int = PER_KIND) -> list[Question]:
    """So many of every kind."""
    return [question for kind in KINDS for question in of_kind(kind, per_kind)]


def of_kind(kind: str, count: int) -> Iterator[Question]:
    draw = Draw(f"turns before {kind}", held_out=True)
    for number, example in enumerate(held_out(kind, count)):
        is_long = number % LONG_EVERY == 0
        yield _question(after(example, earlier_turns(draw, LONG_TURNS)) if is_long else example, number)


def _question(example: Example, number: int) -> Question:
    return Question(
        kind=example.kind,
        key=example.key,
        messages=list(example.messages),
        tools=list(example.tools) or None,
        expected=example.answer.replace(LETTER_GAP, ""),
        judged=example.judged,
        needs_thoughts=example.thinking is not None,
        template_options={"enable_thinking": False} if example.kind in _SILENT_KINDS and number % 2 else {},
    )


def _value(text: str) -> Any:
    """A call's or an answer's JSON as values."""
    return value_of(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
