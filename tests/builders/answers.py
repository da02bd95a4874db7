"""Answers read by a parsing, put together as a caller puts deltas together."""

import json
from typing import Any

from penstock.frontend.parsing import Parsing, Tools


def parsed(parsing: Parsing, *pieces: str, prompt: str = "", tools: Tools | None = None) -> dict[str, Any]:
    """Everything read from an answer that came in these pieces."""
    reader = parsing.reader(prompt, tools or {}, lambda index: f"id{index}")
    thought, text, calls = "", "", []
    for number, piece in enumerate(pieces):
        parts = reader.feed(piece, is_last=number == len(pieces) - 1)
        thought += parts.thought
        text += parts.text
        for call in parts.calls:
            if call.function.name is not None:
                calls.append([call.id, call.function.name, ""])
            calls[call.index][2] += call.function.arguments
    return {
        "thought": thought,
        "text": text,
        "calls": [tuple(call) for call in calls],
        "is_whole": reader.has_whole_calls,
    }


def read(parsing: Parsing, answer: str, **options: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    """Thought, text and calls of an answer that came as a whole."""
    found = parsed(parsing, answer, **options)
    return found["thought"], found["text"], [(name, json.loads(text)) for _, name, text in found["calls"]]
