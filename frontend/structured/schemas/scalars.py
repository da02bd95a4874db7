"""The keywords `type`, `enum` and `const`, and those of numbers and strings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .assertion import Assertion, Expansion, OfType, Reading
from .automata import Unreadable
from .branches import Array, Boolean, Branch, KeywordValue, Null, Number, Path, String, with_values
from .document import Malformed, Schema
from .expressions import split_look_ahead

# Formats that are enforced. Others are ignored, as the standard allows for all of them.
FORMATS = {
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
}  # fmt: skip

_TYPES = {"null", "boolean", "number", "integer", "string", "array", "object"}


def is_number(value: Any) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole or (isinstance(value, float) and math.isfinite(value))


def count(value: Any, location: str) -> int:
    if not is_number(value) or value != int(value) or value < 0:
        raise Malformed(location, "a whole number, 0 or more")
    return int(value)


def number(value: Any, location: str) -> Any:
    if not is_number(value):
        raise Malformed(location, "a number")
    return value


# --- types and values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Types:
    types: frozenset[str]
    location: str

    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        if branch.TYPE in self.types:
            return (branch,)
        if isinstance(branch, Number) and "integer" in self.types:
            return _kept(replace(branch, is_integer=True))
        return ()

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        if branch.TYPE in self.types:
            return ()
        if isinstance(branch, Number) and "integer" in self.types:
            return _kept(replace(branch, no_integer=KeywordValue(True, self.location)))
        return (branch,)


def _types(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    types = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) and each in _TYPES for each in types):
        raise Malformed(location, "the name of a type, or a list of some")
    return _Types(frozenset(types), location)


@dataclass(frozen=True, slots=True)
class _Values:
    values: tuple[Any, ...]
    location: str
    expansion: Expansion

    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        match branch:
            case Null():
                return (branch,) if None in self.values else ()
            case Boolean():
                return (replace(branch, values=tuple(each for each in branch.values if self._has(each))),)
            case Number():
                numbers = tuple(each for each in self.values if is_number(each))
                return (with_values(replace(branch, values=numbers), _both(branch.values, numbers)),)
            case String():
                texts = tuple(each for each in self.values if isinstance(each, str))
                return (with_texts(branch, _both(branch.values, texts), self.expansion),)
        shaped = (self._shaped(each, holds=True) for each in self._of(branch))
        return [found for literals in shaped for found in self.expansion.narrow(literals, [branch], path)]

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        match branch:
            case Null():
                return () if None in self.values else (branch,)
            case Boolean():
                return (replace(branch, values=tuple(each for each in branch.values if not self._has(each))),)
            case Number():
                return _without_numbers(branch, [each for each in self.values if is_number(each)])
            case String():
                texts = tuple(KeywordValue(each, self.location) for each in self.values if isinstance(each, str))
                return (with_texts(replace(branch, no_values=branch.no_values + texts), branch.values, self.expansion),)
        branches: Sequence[Branch] = [branch]
        for each in self._of(branch):
            branches = self.expansion.narrow(self._shaped(each, holds=False), branches, path)
        return branches

    def _has(self, value: bool) -> bool:
        return any(each is value for each in self.values)

    def _of(self, branch: Branch) -> list[Any]:
        kind = list if isinstance(branch, Array) else Mapping
        return list({id(each): each for each in self.values if isinstance(each, kind)}.values())

    def _shaped(self, value: Any, *, holds: bool) -> Any:
        return self.expansion.literal(_shape(value), self.location, holds=holds)


def _both(known: tuple[Any, ...] | None, values: tuple[Any, ...]) -> tuple[Any, ...]:
    values = tuple(dict.fromkeys(values))
    return values if known is None else tuple(each for each in known if each in set(values))


def _shape(value: Any) -> dict[str, Any]:
    """A schema for one array or object."""
    if isinstance(value, list):
        items = [{"const": each} for each in value]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
    return {
        "type": "object",
        "properties": {name: {"const": each} for name, each in value.items()},
        "required": list(value),
        "additionalProperties": False,
    }


def _without_numbers(branch: Number, numbers: list[Any]) -> Sequence[Branch]:
    """The ranges between the numbers, below and above them."""
    if branch.values is not None:
        return (replace(branch, values=tuple(each for each in branch.values if each not in numbers)),)
    branches = [branch]
    for each in sorted(set(numbers)):
        last = branches.pop()
        branches += [_below(last, each, True), _above(last, each, True)]
    return branches


def with_texts(branch: String, values: tuple[str, ...] | None, expansion: Expansion) -> String:
    if values is None:
        return branch
    excluded = {each.value for each in branch.no_values}
    return replace(
        branch, values=tuple(each for each in values if each not in excluded and _fits(branch, each, expansion))
    )


def _fits(branch: String, text: str, expansion: Expansion) -> bool:
    """Whether a text fits; if that is unclear, it is kept, and the compiler decides."""
    if len(text) < branch.shortest or (branch.longest is not None and len(text) > branch.longest):
        return False
    return all(_may_match(each.value, text, expansion) is not False for each in branch.patterns) and not any(
        each.value is not None and _may_match(each.value, text, expansion) for each in branch.no_patterns
    )


def _may_match(pattern: str, text: str, expansion: Expansion) -> bool | None:
    try:
        return expansion.matches(pattern, text)
    except Unreadable:
        return None


def _values(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    if not isinstance(value, list):
        raise Malformed(location, "a list of values")
    if any(isinstance(each, float) and not is_number(each) for each in value):
        raise Malformed(location, "numbers that are not beyond all bounds")
    return _Values(tuple(value), location, expansion)


def _constant(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    return _values([value], schema, location, expansion)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _kept(branch: Number) -> Sequence[Number]:
    """Keep only those of its values that still fit."""
    return (branch if branch.values is None else with_values(branch, branch.values),)


def _below(branch: Number, bound: Any, is_strict: bool) -> Number:
    if branch.high is None or bound < branch.high or (bound == branch.high and is_strict):
        branch = replace(branch, high=bound, is_below_high=is_strict)
    return _kept(branch)[0]


def _above(branch: Number, bound: Any, is_strict: bool) -> Number:
    if branch.low is None or bound > branch.low or (bound == branch.low and is_strict):
        branch = replace(branch, low=bound, is_above_low=is_strict)
    return _kept(branch)[0]


def _limit(is_upper: bool, is_strict: bool, strict_keyword: str = "") -> Reading:
    inward, outward = (_below, _above) if is_upper else (_above, _below)

    def read(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
        if isinstance(value, bool):  # draft 4's form, next to the bound
            return None
        bound = number(value, location)
        strictly = is_strict or schema.get(strict_keyword) is True
        return OfType(
            Number,
            lambda branch, path: (inward(branch, bound, strictly),),
            lambda branch, path: (outward(branch, bound, not strictly),),
        )

    return read


def _multiple(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    if number(value, location) <= 0:
        raise Malformed(location, "a number above 0")
    return OfType(
        Number,
        lambda branch, path: _kept(replace(branch, multiples=(*branch.multiples, value))),
        lambda branch, path: _kept(replace(branch, no_multiples=(*branch.no_multiples, KeywordValue(value, location)))),
    )


# --- strings ----------------------------------------------------------------------------------------------------------


def _checked(branch: String, expansion: Expansion) -> Sequence[String]:
    return (with_texts(branch, branch.values, expansion),)


def _length(keyword: str) -> Reading:
    def at_least(branch: String, length: int, expansion: Expansion) -> Sequence[String]:
        return _checked(replace(branch, shortest=max(branch.shortest, length)), expansion)

    def at_most(branch: String, length: int, expansion: Expansion) -> Sequence[String]:
        longest = length if branch.longest is None else min(branch.longest, length)
        return _checked(replace(branch, longest=longest), expansion) if length >= 0 else ()

    def read(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
        length = count(value, location)
        if keyword == "minLength":
            return OfType(
                String,
                lambda b, path: at_least(b, length, expansion),
                lambda b, path: at_most(b, length - 1, expansion),
            )
        return OfType(
            String, lambda b, path: at_most(b, length, expansion), lambda b, path: at_least(b, length + 1, expansion)
        )

    return read


def _pattern(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    if not isinstance(value, str):
        raise Malformed(location, "a regular expression (a string)")
    try:
        rest, ahead, not_ahead = split_look_ahead(value)
    except Unreadable:
        rest, ahead, not_ahead = value, [], []
    wanted = tuple(KeywordValue(each, location) for each in ((rest, *ahead) if rest != "^" else ahead))
    unwanted = tuple(KeywordValue(each, location) for each in not_ahead)

    def narrowed(branch: String, path: Path) -> Sequence[String]:
        patterns = branch.patterns + tuple(each for each in wanted if each not in branch.patterns)
        return _checked(replace(branch, patterns=patterns, no_patterns=branch.no_patterns + unwanted), expansion)

    def violated(branch: String, path: Path) -> Sequence[String]:
        return [
            *(_checked(replace(branch, no_patterns=(*branch.no_patterns, each)), expansion)[0] for each in wanted),
            *(_checked(replace(branch, patterns=(*branch.patterns, each)), expansion)[0] for each in unwanted),
        ]

    return OfType(String, narrowed, violated)


def _format(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    if not isinstance(value, str) or value not in FORMATS:
        return None

    def narrowed(branch: String, path: Path) -> Sequence[String]:
        return (replace(branch, formats=tuple(dict.fromkeys((*branch.formats, value)))),)

    # Without format assertions nothing fails; with them, texts without the format do.
    def violated(branch: String, path: Path) -> Sequence[String]:
        return (replace(branch, no_patterns=(*branch.no_patterns, KeywordValue(None, location))),)

    return OfType(String, narrowed, violated)


READINGS: dict[str, Reading] = {
    "type": _types,
    "const": _constant,
    "enum": _values,
    "minimum": _limit(False, False, "exclusiveMinimum"),
    "maximum": _limit(True, False, "exclusiveMaximum"),
    "exclusiveMinimum": _limit(False, True),
    "exclusiveMaximum": _limit(True, True),
    "multipleOf": _multiple,
    "minLength": _length("minLength"),
    "maxLength": _length("maxLength"),
    "pattern": _pattern,
    "format": _format,
}
