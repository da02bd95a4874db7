"""The held-out questions that pocket is measured by, by kind, and how an answer is judged.

They come from the training text's own generators, on the other side of their split: no operands, names or words of a
question here are in the training text; of what must be learnt by heart (facts, greetings) the phrasing is held out, of
invented tools the name. Four in ten are loosened (`pocket.wording`), of greetings seven; one in eight comes after 500
tokens and more of earlier turns.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pocket.example import Draw, Example, after
from pocket.kinds import KINDS, earlier_turns, held_out

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
        answer = text.rpartition("</think>")[2].strip()
        if self.judged == "exact":
            return answer == self.expected
        return _values(answer) == _values(self.expected)


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
        expected=example.answer.replace("\x00", ""),
        judged=example.judged,
        needs_thoughts=example.thinking is not None,
        template_options={"enable_thinking": False} if example.kind in _SILENT_KINDS and number % 2 else {},
    )


def _values(text: str) -> Any:
    """A call's or an answer's JSON as values; None where it is none."""
    text = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    try:
        return json.loads(text)
    except ValueError:
        return None
