"""Copies callers' values into JSON's own types, which a template may see and a socket can carry."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Copy a value into JSON's own types: objects with methods would be a way out of the sandbox."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    for kind, base_value in _BASE_VALUES.items():  # a subclass, such as an enum
        if isinstance(value, kind):
            return base_value(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(model_dump := getattr(value, "model_dump", None)):  # pydantic
        return plain(model_dump())
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:  # numpy's scalars
        return plain(item())
    return f"<{type(value).__name__}>"


_BASE_VALUES: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


def well_formed(text: str) -> str:
    """Replace surrogates, which JSON and file names may contain: a pair by its character, a single one by U+FFFD.

    No message can contain half a pair, and every tokenizer reads it as U+FFFD.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
