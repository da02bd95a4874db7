"""What must hold of a parameter that a person wrote, as rows of tables: how it becomes the field's type, and bounds.

Knows no parameter.
"""

import operator
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NamedTuple

from .errors import RequestError

_IN_THOUSANDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([kKmM])\s*", re.ASCII)


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
        raise RequestError(f"{name}={shown(value)}: {self.sentence}.{written_out(value, self.accepts)}")

    def accepts(self, value: Any) -> bool:
        return self.holds(self.convert(value))


def shown(value: Any) -> str:
    """As it is told to whoever gave it, short: of what is long both ends, for a path's last part is what names it."""
    try:
        text = repr(str(value) if isinstance(value, PurePath) else value)
    except Exception:  # a number of thousands of digits, a nesting as deep, or a value's own fault
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"


def written_out(value: Any, holds: Callable[[int], Any]) -> str:
    """A sentence to append for "32k" in the place of a whole number, where that number would be right."""
    found = _IN_THOUSANDS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return ""
    power = " km".index(found[2].lower())
    numbers = [round(float(found[1]) * base**power) for base in (1024, 1000)]
    try:
        if any(holds(number) is False for number in numbers):
            return ""
    except (AttributeError, TypeError, ValueError, OverflowError):
        return ""
    return f" Written out, {value.strip()} is {numbers[0]} (or {numbers[1]})."


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
