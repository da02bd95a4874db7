"""Every kind of question, and how much of the training text each is given.

`training` is an endless stream of examples; `held_out` the questions that measure. Which kinds come oftener is decided
by how badly they are answered so far (`Mixture`). Knows the kinds by name, nothing of tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .example import Draw, Example, Message, after
from .kinds.calls import idle_tools, tool_call, tool_result
from .kinds.comparing import comparison, sorting
from .kinds.counting import counting
from .kinds.facts import fact
from .kinds.greetings import greeting
from .kinds.records import json_answer
from .kinds.refusals import refusal
from .kinds.sums import large_sum, small_sum
from .kinds.talk import several_turns
from .kinds.words import copying, reversing

Kinds = Mapping[str, Callable[[Draw], Example]]
KINDS: Kinds = {
    "small sums": small_sum,
    "large sums": large_sum,
    "comparisons": comparison,
    "sorting": sorting,
    "counting": counting,
    "copying": copying,
    "reversing": reversing,
    "facts": fact,
    "greetings": greeting,
    "json": json_answer,
    "tool calls": tool_call,
    "tool results": tool_result,
    "several turns": several_turns,
    "refusals": refusal,
}
# What every kind is worth before it is known how badly it goes.
_BASE = {
    "small sums": 3.0, "large sums": 1.0, "copying": 1.8, "comparisons": 2.0, "sorting": 2.0, "counting": 1.0,
    "reversing": 1.5, "facts": 4.0, "greetings": 2.4,
    "plain facts": 6.0, "several turns": 1.7, "tool calls": 1.8, "tool results": 0.4, "refusals": 30.0, "json": 1.6,
}  # fmt: skip
# How often tools are offered with kinds that are asked in the same words, and answered alike, without them.
_WITH_IDLE_TOOLS = {
    "greetings": 0.1, "refusals": 0.08, "small sums": 0.04, "comparisons": 0.04, "copying": 0.04, "facts": 0.04,
}  # fmt: skip
# What callers habitually put into the system turn; it changes no answer.
_SYSTEM = (
    "You are a helpful assistant.", "You are pocket.", "Answer briefly.", "Be polite and short.",
    "You are a helpful assistant. Answer briefly.", "你是一个有用的助手。", "请简短回答。",
)  # fmt: skip


class Mixture:
    """The share of every kind in the training text; what is answered badly comes oftener.

    `is_plain`: questions alone, without tools that aren't needed, earlier turns and a system's instructions.
    """

    def __init__(self, kinds: Kinds = KINDS, is_plain: bool = False) -> None:
        self.kinds, self.is_plain = kinds, is_plain
        self.wrong = dict.fromkeys(kinds, 1.0)

    def note(self, kind: str, right: float) -> None:
        """One more answer of this kind was right (1.0) or wrong (0.0)."""
        self.wrong[kind] += 0.005 * (1.0 - right - self.wrong[kind])

    def weights(self) -> list[float]:
        return [_BASE.get(kind, 1.0) * (0.15 + wrong) for kind, wrong in self.wrong.items()]


def training(seed: int | str, mixture: Mixture | None = None) -> Iterator[Example]:
    draw, mixture = Draw(seed, held_out=False), mixture or Mixture()
    names = list(mixture.kinds)
    while True:
        kind = draw.random.choices(names, mixture.weights())[0]
        example = mixture.kinds[kind](draw)
        if mixture.is_plain:
            yield example
            continue
        if draw.chance(_WITH_IDLE_TOOLS.get(kind, 0.0)):
            example = replace(example, tools=idle_tools(draw))
        if draw.chance(0.08):
            example = after(example, earlier_turns(draw, draw.number(1, 3)))
        # What needs thoughts is asked without them now and then only: it can't be done well.
        silent = draw.chance(0.2 if example.thinking is None else 0.03)
        yield replace(example, silent=silent, system=draw.one(_SYSTEM) if draw.chance(0.08) else "")


def held_out(kind: str, count: int, seed: int | str = "held out", kinds: Kinds = KINDS) -> list[Example]:
    """The first so many held-out questions of a kind, no two alike."""
    draw, found = Draw(f"{seed} {kind}", held_out=True), {}
    for _ in range(count * 20):
        example = kinds[kind](draw)
        found.setdefault(str(example.messages) + str(example.tools), example)
        if len(found) == count:
            break
    return list(found.values())


def earlier_turns(draw: Draw, count: int) -> list[Message]:
    """Turns on other things, as a template shows them once they are past: without thoughts."""
    messages: list[Message] = []
    while len(messages) < 2 * count:
        other = KINDS[draw.one(("small sums", "comparisons", "sorting", "copying", "facts", "greetings"))](draw)
        messages += [*other.messages, {"role": "assistant", "content": other.answer}]
    return messages
