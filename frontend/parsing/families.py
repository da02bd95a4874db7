"""How families of models write their thoughts and their calls: one row a way, and which rows a model gets.

The names of the rows are the values of the options `reasoning_parser` and `tool_call_parser`. A new family is a row; if
it writes its calls in a way of its own, it also brings a `CallReader`. Knows nothing of requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ...protocol.config import EngineConfig
from .answer import AnswerReader, CallMarks, Marks
from .json_call import JsonCall

Row = TypeVar("Row", bound=Marks)

REASONING: dict[str, Marks] = {
    "qwen3": Marks("<think>", "</think>"),
}
TOOL_CALLS: dict[str, CallMarks] = {
    "hermes": CallMarks("<tool_call>", "</tool_call>", JsonCall),
}


@dataclass(frozen=True, slots=True)
class Parsing:
    """What is read out of the answers of one model; at least one of the two."""

    thoughts: Marks | None
    calls: CallMarks | None

    @classmethod
    def of(cls, config: EngineConfig) -> "Parsing | None":
        """None where the config asks for neither; a config that says `auto` must have been settled before."""
        thoughts = REASONING[config.reasoning_parser] if config.reasoning_parser else None
        calls = TOOL_CALLS[config.tool_call_parser] if config.tool_call_parser else None
        return cls(thoughts, calls) if thoughts or calls else None

    @property
    def marks(self) -> frozenset[str]:
        """What must reach the reader as text, even where the tokenizer would hide it as a special token."""
        return frozenset(mark for row in (self.thoughts, self.calls) if row for mark in (row.opening, row.closing))

    def reader(self, prompt_end: str, call_id: Callable[[int], str]) -> AnswerReader:
        """For one answer. A template may have begun the thought already: then the prompt ends with its opening mark."""
        is_thinking = self.thoughts is not None and prompt_end.rstrip().endswith(self.thoughts.opening)
        return AnswerReader(self.thoughts, self.calls, call_id, is_thinking=is_thinking)


def settled(config: EngineConfig, chat_template: str) -> EngineConfig:
    """`auto` becomes the row whose marks the model's chat template has, or None."""
    chosen: dict[str, str | None] = {}
    if config.reasoning_parser == "auto":
        chosen["reasoning_parser"] = _written_by(chat_template, REASONING)
    if config.tool_call_parser == "auto":
        chosen["tool_call_parser"] = _written_by(chat_template, TOOL_CALLS)
    return msgspec.structs.replace(config, **chosen)


def _written_by(chat_template: str, rows: Mapping[str, Row]) -> str | None:
    """The first row whose marks both stand in the template."""
    for name, row in rows.items():
        if row.opening in chat_template and row.closing in chat_template:
            return name
    return None
