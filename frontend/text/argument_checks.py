"""Checks the arguments of `Tokenizer`'s methods: values of a wrong type are refused in a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...protocol.errors import RequestError


@contextmanager
def token_ids_only() -> Iterator[None]:
    """Around calls that take ids: turns their failure on other values into a sentence."""
    try:
        yield
    except (TypeError, OverflowError) as error:
        raise RequestError("Token ids must be whole numbers from 0 on, such as encode() returns.") from error


def check_texts(texts: Any) -> None:
    if not isinstance(texts, (list, tuple)):
        raise RequestError(f"texts must be a list of str, not {_type(texts)}.")
    for text in texts:
        check_text("text", text)


def check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise RequestError(f"{name} must be a str, not {_type(text)}.")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be True or False, not {_type(value)}.")


def well_formed(text: str) -> str:
    """Surrogates, which JSON and file names let through: a pair is its character, a single one U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _type(value: Any) -> str:
    return type(value).__name__
