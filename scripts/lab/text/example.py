"""One example: a conversation, the answer wanted, and the key that says on which side of the split it stands.

Training and measuring draw from the same generators. `Draw` keeps them apart: a key (the operands, the names) hashes
to one side and is never seen on the other; of facts, which must be learnt, the phrasing stands on one side instead.
Knows no kind of question by name, and no tokens.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

Item = TypeVar("Item")
Message = dict[str, Any]

# One key in so many is held out.
HELD_OUT_SHARE = 10
# Put between letters that are to be trained as tokens of their own; it never reaches a reader.
LETTER_GAP = "\x00"


@dataclass(frozen=True)
class Example:
    kind: str
    key: str
    messages: tuple[Message, ...]
    answer: str
    thinking: str | None = None  # None: there is nothing to think about
    tools: tuple[Mapping[str, Any], ...] = ()
    # How an answer is judged: "exact", "call" (the calls' JSON) or "json" (equal as JSON).
    judged: str = "exact"
    system: str = ""
    silent: bool = False  # the empty think block stands in the prompt (enable_thinking=False)


def one_turn(kind: str, key: str, question: str, answer: object, **more: Any) -> Example:
    """An example of one question and one answer."""
    return Example(kind, key, ({"role": "user", "content": question},), str(answer), **more)


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in the Hermes form, as Qwen's models write it."""
    return "<tool_call>\n" + compact_json({"name": name, "arguments": arguments}) + "\n</tool_call>"


class Draw:
    """A source of choices on one side of the split."""

    def __init__(self, seed: int | str, held_out: bool) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def admits(self, key: str) -> bool:
        return (zlib.crc32(f"pocket {key}".encode()) % HELD_OUT_SHARE == 0) == self.held_out

    def until_admitted(self, make: Callable[[], Item], key_of: Callable[[Item], str]) -> tuple[Item, str]:
        """Something from `make` that stands on this side, and its key."""
        while (found := self.admitted(make, key_of)) is None:
            pass
        return found

    def admitted(self, make: Callable[[], Item], key_of: Callable[[Item], str]) -> tuple[Item, str] | None:
        """Like `until_admitted`, but None if nothing of many is of this side."""
        for _ in range(300):
            made = make()
            if self.admits(key := key_of(made)):
                return made, key
        return None

    def phrase(self, phrases: Sequence[str]) -> str:
        """One of these phrases, from this side of the split."""
        return self.random.choice(self.side(phrases))

    def side(self, phrases: Sequence[str]) -> Sequence[str]:
        """The wordings that are on this side; the last of them are the held-out ones."""
        kept = max(1, len(phrases) // 5)
        return phrases[-kept:] if self.held_out else phrases[:-kept]

    def one(self, items: Sequence[Item]) -> Item:
        return self.random.choice(items)

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        return self.random.sample(items, count)

    def number(self, low: int, high: int) -> int:
        """A number in this range, both ends included."""
        return self.random.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.random.random() < share


# --- to text, as the chat template renders it ------------------------------------------------------------------------


def rendered_prompt(example: Example) -> str:
    """All that stands before the answer."""
    text = _system_text(example)
    for message in example.messages:
        text += _message_text(message)
    return text + "<|im_start|>assistant\n" + ("<think>\n\n</think>\n\n" if example.silent else "")


def rendered_answer(example: Example) -> str:
    thoughts = "" if example.thinking is None or example.silent else f"<think>\n{example.thinking}\n</think>\n\n"
    return thoughts + example.answer + "<|im_end|>"


def after(example: Example, earlier: Sequence[Message]) -> Example:
    """The same question, later in a conversation."""
    return replace(example, messages=(*earlier, *example.messages))


def _system_text(example: Example) -> str:
    content = example.system
    if example.tools:
        lines = "".join("\n" + compact_json(tool) for tool in example.tools)
        content += "\n\n" if content else ""
        content += f"# Tools\n\nYou may call one or more of these functions:\n<tools>{lines}\n</tools>"
    return f"<|im_start|>system\n{content}<|im_end|>\n" if content else ""


def _message_text(message: Message) -> str:
    content = message.get("content", "")
    if message["role"] == "tool":
        return f"<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n"
    for call in message.get("tool_calls", ()):
        function = call["function"]
        content += call_text(function["name"], function["arguments"])
    return f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
