"""What must hold of a parameter that a person wrote, as rows of tables: how it becomes the field's type, and bounds.

Knows no parameter.
"""

import operator
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NamedTuple

from .errors import RequestError


class Rule(NamedTuple):
    """Turns what a person wrote into the field's own type, and says what must hold of it."""

    convert: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    sentence: str

    def checked(self, name: str, value: Any) -> Any:
        try:
            converted = self.convert(value)
            if self.holds(converted):
                return converted
        except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
            pass
        raise RequestError(f"{name}={shown(value)}: {self.sentence}.")


def shown(value: Any) -> str:
    """As it is told to whoever gave it, short: of what is long both ends, for a path's last part is what names it."""
    try:
        text = repr(str(value) if isinstance(value, PurePath) else value)
    except Exception:  # a number of thousands of digits, a nesting as deep, or a value's own fault
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"


def real(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError
    return float(value)


def integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def text(value: Any) -> str:
    plain = str.__str__(value)  # raises for what is no string, and takes from a subclass what is its own
    plain.encode()  # raises for half a surrogate pair, which no message can carry
    return plain


def between(low: float, high: float) -> Rule:
    return Rule(real, lambda value: low <= value <= high, f"must be a number from {low:g} to {high:g}")


def at_least(low: int) -> Rule:
    return Rule(integer, lambda value: low <= value < 2**31, f"must be a whole number, {low} or more")


BOOLEAN = Rule(_truth, lambda value: True, "must be True or False")
TEXT = Rule(text, lambda value: isinstance(value, str), "must be a string of valid Unicode")
