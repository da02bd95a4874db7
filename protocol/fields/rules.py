"""`NamedFields`, the base of structs that people fill in by hand, and `Rule`s, each stated on a field of such a struct.

    presence_penalty: Annotated[float, described("-2..2, once per token …", between(-2, 2))] = 0.0

A rule converts a value to the field's type and checks its bounds.
"""

import json
import operator
import re
import sys
from collections.abc import Callable, Mapping
from inspect import Signature
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import PenstockError, RequestError
from .field_help import signature
from .suggestion import suggestion

MOST = 2**31 - 1  # for whole numbers without another bound

_IN_THOUSANDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([kKmM])\s*", re.ASCII)


class Rule(NamedTuple):
    """Converts a value to the field's type and says what it must satisfy."""

    convert: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    sentence: str
    choices: tuple[Any, ...] = ()  # if only these are allowed
    # Bounds of a number, or of each number in a list or dict, by their names in msgspec.Meta.
    bounds: Mapping[str, Any] = MappingProxyType({})

    def checked(self, name: str, value: Any, error: type[Exception] = RequestError) -> Any:
        try:
            converted = self.convert(value)
            if self.holds(converted):
                return converted
        except PenstockError:  # it has its own message
            raise
        except Exception:  # a caller's own type may raise anything
            pass
        hint = suggestion(value, self.choices) if self.choices else written_out(value, self.accepts)
        if self.bounds.get("le") == MOST and type(value) is int and value > MOST:
            hint = f" The largest is {MOST}."
        raise error(f"{name}={shown(value)}: {self.sentence}.{hint}")

    def accepts(self, value: Any) -> bool:
        return self.holds(self.convert(value))


def shown(value: Any) -> str:
    """Format the value for an error message. Long ones keep both ends, since a path's last part names the file."""
    try:
        text = repr(str(value) if isinstance(value, PurePath) else value)
    except Exception:  # a number of thousands of digits, a nesting as deep, or a broken `__repr__`
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"


def written_out(value: Any, holds: Callable[[int], Any]) -> str:
    """A sentence to append if someone wrote "32k" for a whole number accepted by `holds`."""
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


def _flag(value: Any) -> bool:
    if value not in (True, False, 0, 1):
        raise ValueError
    return bool(value)


def text(value: Any) -> str:
    plain = str.__str__(value)  # raises unless it is a string, and bypasses a subclass's own method
    plain.encode()  # raises for half a surrogate pair, which can't be sent
    return plain


def json_value(text: str) -> Any:
    """What JSON text says. Raises ValueError if it is no JSON, or has a key twice: it is unclear which was meant."""
    return json.loads(text, object_pairs_hook=_once_each)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {shown(key)} twice in one object")
        found[key] = value
    return found


def ranged(
    convert: Callable[[Any], Any],
    sentence: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Rule:
    """A number at least `ge`, or above `gt`, and at most `le`; without `le` it must be finite."""
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le)) if bound is not None}
    most = sys.float_info.max if le is None else le
    if gt is not None:
        return Rule(convert, lambda value: gt < value <= most, sentence, bounds=bounds)
    least = -sys.float_info.max if ge is None else ge
    return Rule(convert, lambda value: least <= value <= most, sentence, bounds=bounds)


def between(low: float, high: float) -> Rule:
    return ranged(real, f"must be a number from {low:g} to {high:g}", ge=low, le=high)


def whole(low: int, high: int) -> Rule:
    return ranged(integer, f"must be {low} to {high}", ge=low, le=high)


def at_least(low: int) -> Rule:
    return ranged(integer, f"must be a whole number, {low} or more", ge=low, le=MOST)


BOOLEAN = Rule(_truth, lambda value: True, "must be True or False")
FLAG = Rule(_flag, lambda value: True, "must be True or False")  # also accepts 0 or 1, as in option files
TEXT = Rule(text, lambda value: isinstance(value, str), "must be a string of valid Unicode")
FINITE = ranged(real, "must be a finite number, 0 or more", ge=0)


class _Made(msgspec.StructMeta):
    if not TYPE_CHECKING:  # type checkers know the fields from the class itself, here as below

        def __call__(cls, *values: Any, **fields: Any) -> Any:
            if values and (order := getattr(cls, "_order", None)) is not None:
                values, fields = (), _by_name(cls, order, values, fields)
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                for name in fields:
                    if name not in cls.__struct_fields__:
                        raise TypeError(_no_field(cls, name)) from None
                raise

        @property
        def __signature__(cls) -> Signature:
            return signature(cls)


class NamedFields(msgspec.Struct, metaclass=_Made):
    """Base class whose unknown fields raise an error that suggests the likely name, whether the struct is created, read
    or changed. Decoders raise their own errors (`decoding_fault.py`).

    A struct of keyword fields may have an `_order`, which names the fields of positional values, and `_elsewhere`: what
    to write instead of other engines' fields.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_no_field(type(self), name))

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in self.__struct_fields__:
                raise AttributeError(_no_field(type(self), name))
            super().__setattr__(name, value)


def _by_name(
    kind: type[msgspec.Struct], order: tuple[str, ...], values: tuple[Any, ...], fields: dict[str, Any]
) -> dict[str, Any]:
    """Match positional values to fields, in another engine's order. Values for fields that don't exist here may be left
    unset."""
    if len(values) > len(order):
        raise TypeError(f"{kind.__name__} takes {len(order)} values by position, and {len(values)} were given.")
    given = dict(zip(order, values))
    for name, value in given.items():
        if name in fields:
            raise TypeError(f"{kind.__name__} was given {name!r} twice: by position and by name.")
        if name not in kind.__struct_fields__ and value not in (None, False):
            raise TypeError(_no_field(kind, name))
    return fields | {name: value for name, value in given.items() if name in kind.__struct_fields__}


def _no_field(kind: type[msgspec.Struct], name: str) -> str:
    if elsewhere := getattr(kind, "_elsewhere", {}).get(name):
        return f"{kind.__name__} has no field {name!r}: {elsewhere}."
    return f"{kind.__name__} has no field {name!r}.{suggestion(name, kind.__struct_fields__)}"
