"""Describes what a field takes in words for a person, from the struct's own types and bounds."""

from collections.abc import Sequence
from typing import Any

from msgspec import inspect

# Bounds that only state how large an integer in a message can be.
_MOST = 2**31 - 1
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def wanted(types: Sequence[Any], *, is_too_large: bool = False) -> str:
    """Describe a field's alternatives; empty if one has no word. The type None is left out, since it means unset."""
    words = [_word(each, is_too_large) for each in types if not isinstance(each, inspect.NoneType)]
    # A description with a comma goes last, where its parts can't be taken for further alternatives.
    return " or ".join(sorted(dict.fromkeys(words), key=lambda word: "," in word)) if all(words) else ""


def _word(kind: Any, is_too_large: bool) -> str:
    match kind:
        case inspect.IntType():
            return f"a whole number{_bounds(kind, is_too_large)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind, is_too_large)}"
        case inspect.StrType():
            return f"text{_length(kind, ' of {} characters')}"
        case inspect.BoolType():
            return "true or false"
        case inspect.CollectionType():
            return f"a list{_length(kind, ' of {} items')}"
        case inspect.DictType() | inspect.StructType():
            return "an object"
        case inspect.LiteralType(values=values):
            return ("one of " if len(values) > 1 else "") + ", ".join(map(str, values))
    return ""


def _bounds(kind: Any, is_too_large: bool) -> str:
    most = None if kind.le is not None and kind.le >= _MOST and not is_too_large else kind.le
    if kind.gt is not None:
        return f" above {_figure(kind.gt)}" + (f" and at most {_figure(most)}" if most is not None else "")
    if kind.ge is None:
        return f", at most {_figure(most)}" if most is not None else ""
    return f", {_figure(kind.ge)} or more" if most is None else f" from {_figure(kind.ge)} to {_figure(most)}"


def _length(kind: Any, words: str) -> str:
    if kind.max_length is None:
        return words.format(f"{kind.min_length} or more") if kind.min_length else ""
    least = f"{kind.min_length} to" if kind.min_length else "at most"
    return words.format(f"{least} {kind.max_length}")


def _figure(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
