"""Tokens that end an answer, from a model's own files, each with the file that lists it.

A value of another type is refused when the model is loaded. Ids that the model does not have are common (its embedding
was cut, or the tokenizer has more tokens than the model): no answer can end with them, so they are dropped with a
notice.
"""

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown

EndTokens = Mapping[int, str]  # id → its source


def listed(value: Any, where: str) -> dict[int, str]:
    """The ids under `eos_token_id` in a file: an id or a list of them."""
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int for token in ids):
        raise ConfigError(f"{where}={shown(value)} must be a token id or a list of them. Correct the file.")
    return dict.fromkeys(ids, where)


def in_vocabulary(tokens: EndTokens, vocab_size: int) -> list[int]:
    return [token for token in tokens if 0 <= token < vocab_size]


def notice(tokens: EndTokens, vocab_size: int) -> str | None:
    """A sentence about end tokens that the model doesn't have."""
    known = in_vocabulary(tokens, vocab_size)
    if len(known) == len(tokens):
        return None
    left_out = ", ".join(f"{shown(token)} ({where})" for token, where in tokens.items() if token not in known)
    rest = "" if known else " No other is named, so every answer goes on to its max_tokens or a stop string."
    return f"End tokens that are not in the model's vocabulary (0 to {vocab_size - 1}) end nothing: {left_out}.{rest}"
