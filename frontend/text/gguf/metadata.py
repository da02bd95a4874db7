"""Values of a GGUF file's metadata, checked for the type of their key; None if missing.

The file may come from a stranger: a value of another type raises a ValueError that names the key.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from ....protocol.fields.rules import shown

Metadata = Mapping[str, Any]
Value = TypeVar("Value", str, bool, int, float)

PREFIX = "tokenizer.ggml."


def text(metadata: Metadata, key: str) -> str | None:
    return _one(metadata, key, str, "a text")


def flag(metadata: Metadata, key: str) -> bool | None:
    return _one(metadata, key, bool, "true or false")


def whole_number(metadata: Metadata, key: str) -> int | None:
    return _one(metadata, key, int, "a whole number")


def texts(metadata: Metadata, key: str) -> list[str] | None:
    return _several(metadata, key, str, "texts")


def whole_numbers(metadata: Metadata, key: str) -> list[int] | None:
    return _several(metadata, key, int, "whole numbers")


def real_numbers(metadata: Metadata, key: str) -> list[float] | None:
    """The numbers; raises for NaN, which has no order."""
    values = metadata.get(key)
    if isinstance(values, list) and set(map(type, values)) == {int}:
        metadata = {key: list(map(float, values))}
    found = _several(metadata, key, float, "numbers")
    if found is not None and any(map(math.isnan, found)):
        raise ValueError(f"{key} has NaN at index {next(at for at, each in enumerate(found) if math.isnan(each)):,}")
    return found


def _one(metadata: Metadata, key: str, kind: type[Value], name: str) -> Value | None:
    if key not in metadata:
        return None
    value = metadata[key]
    if type(value) is not kind:  # a bool is no number here
        raise ValueError(f"{key} is {_described(value)}, and {name} belongs there")
    return value


def _several(metadata: Metadata, key: str, kind: type[Value], name: str) -> list[Value] | None:
    if key not in metadata:
        return None
    values = metadata[key]
    if not isinstance(values, list):
        raise ValueError(f"{key} is {_described(values)}, and a list of {name} belongs there")
    if not set(map(type, values)) <= {kind}:
        at = next(at for at, value in enumerate(values) if type(value) is not kind)
        raise ValueError(f"{key} has {shown(values[at])} at index {at:,}, and is a list of {name}")
    return values


def _described(value: Any) -> str:
    return f"a list of {len(value):,} values" if isinstance(value, list) else shown(value)
