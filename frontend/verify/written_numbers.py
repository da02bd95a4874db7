"""Compares numbers of a body, as their digits are written there, with the numbers that were computed.

JSON may be written again by other programs, with other digits for the same number. A number is the same if it is
written in full, or rounded correctly to nine digits or more, which determine a float32: so a changed digit is found
wherever it stands.
"""

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

import numpy

from ...protocol.errors import RequestError

# As many as determine a float32, and as many as anybody writes.
_LEAST_DIGITS, _MOST_DIGITS = 9, 64
_CLAMPED = (-9999.0, 9999.0)  # what `to_dict` writes for infinities


class WrittenNumber(str):
    """A number with a point or an exponent, with its digits as they stand in JSON."""

    __slots__ = ()

    def __new__(cls, text: str) -> "WrittenNumber":
        if math.isinf(float(text)):
            raise RequestError(f"{text[:40]} is too large for a number")
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return str(self)


def is_same(expected: Any, found: Any) -> bool:
    """Return whether a value of a body is what it must be."""
    if not isinstance(expected, float):
        return type(expected) is type(found) and bool(expected == found)
    if isinstance(found, bool) or not isinstance(found, int | float | WrittenNumber):
        return found is None and not math.isfinite(expected)
    if isinstance(found, int):
        return found == expected
    text = float.__repr__(found) if isinstance(found, float) else str(found)
    if text == repr(expected):
        return True
    if not math.isfinite(expected):
        return math.isinf(expected) and float(text) == _CLAMPED[expected > 0]
    return _is_rounded(text, expected)


def _is_rounded(text: str, expected: float) -> bool:
    try:
        given = Decimal(text)
    except InvalidOperation:
        return False
    exact, digits = Decimal(expected), given.as_tuple().digits
    if given == exact:
        return bool(given.is_signed() == exact.is_signed())
    if len(digits) > _MOST_DIGITS:
        return False
    if given == Context(prec=max(len(digits), _LEAST_DIGITS), rounding=ROUND_HALF_EVEN).plus(exact):
        return True
    if len(digits) >= _LEAST_DIGITS or digits[-1] == 0:
        return False
    single = numpy.float32(expected)  # these may be its shortest digits
    return float(single) == expected and given == Decimal(str(single))
