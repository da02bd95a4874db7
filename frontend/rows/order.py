"""The order in which a job computes its rows: rows that share a prefix follow one another, so that it is computed once.

The input is taken in stretches of some thousand rows, and each stretch is sorted by what its prompts begin with. That
needs no more memory for a longer input. The output's order and bytes don't depend on it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..requests.prompts import Conversation
from .prompts import Row

_MOST_ROWS = 2048  # of a stretch: they are parsed while no answer is kept
_MOST_CHARACTERS = 8 << 20

Line = TypeVar("Line")
Beginning = tuple[str, str, str]


def in_prefix_order(rows: Iterable[tuple[Line, Row]]) -> Iterator[tuple[Line, Row]]:
    """Rows with the lines that they are from."""
    remaining = iter(rows)
    while stretch := list(_stretch(remaining)):
        stretch.sort(key=lambda each: each[0])  # rows that begin alike keep their order
        yield from ((line, row) for _, line, row in stretch)


def _stretch(rows: Iterator[tuple[Line, Row]]) -> Iterator[tuple[Beginning, Line, Row]]:
    num_characters = 0
    for line, row in itertools.islice(rows, _MOST_ROWS):
        beginning = beginning_of(row)
        yield beginning, line, row
        num_characters += len(beginning[-1])
        if num_characters >= _MOST_CHARACTERS:
            return


def beginning_of(row: Row) -> Beginning:
    """A key by which rows are neighbours if their prompts have a prefix in common. Nothing is shared between adapters
    or salts."""
    return row.params.lora_name or "", row.params.cache_salt or "", _content(row.prompt)


def _content(prompt: Any) -> str:
    match prompt:
        case str():
            return prompt
        case Conversation():
            return repr((prompt.chat_template, prompt.tools, prompt.messages))
        case Mapping():
            text = prompt.get("prompt")
            return text if isinstance(text, str) else repr(prompt.get("prompt_token_ids"))
    return repr(prompt)
