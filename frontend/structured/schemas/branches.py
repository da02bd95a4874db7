"""Branches: each is one way in which a value may be valid, with one type and bounds.

A schema becomes a list of branches, and a value must fit at least one. Keywords narrow branches, or split them. Schemas
for parts of a value (a property, an item) are kept as literals, which are expanded later. Branches are immutable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from .document import ANYTHING, Literals

Path = tuple[int, ...]  # the position of a part in the schema's text


class KeywordValue(NamedTuple):
    """A keyword's value and its location, kept until all keywords are known."""

    value: Any
    location: str


@dataclass(frozen=True, slots=True)
class Null:
    TYPE = "null"


@dataclass(frozen=True, slots=True)
class Boolean:
    TYPE = "boolean"
    values: tuple[bool, ...] = (True, False)


@dataclass(frozen=True, slots=True)
class Number:
    TYPE = "number"
    is_integer: bool = False
    no_integer: KeywordValue | None = None
    low: Any = None
    is_above_low: bool = False  # exclusive: `low` itself doesn't fit
    high: Any = None
    is_below_high: bool = False
    multiples: tuple[Any, ...] = ()
    no_multiples: tuple[KeywordValue, ...] = ()
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class String:
    TYPE = "string"
    shortest: int = 0
    longest: int | None = None
    patterns: tuple[KeywordValue, ...] = ()
    no_patterns: tuple[KeywordValue, ...] = ()
    formats: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    no_values: tuple[KeywordValue, ...] = ()


class Contained(NamedTuple):
    """A number of items, from index `start` on, fit `literals`; the others are not restricted."""

    literals: Literals
    others: Literals  # their negation
    least: int
    most: int | None
    start: int
    location: str


@dataclass(frozen=True, slots=True)
class Array:
    TYPE = "array"
    prefix: tuple[Literals, ...] = ()
    rest: Literals = ANYTHING
    least: int = 0
    most: int | None = None
    contained: tuple[Contained, ...] = ()
    unique: str | None = None  # the location of `uniqueItems`

    def item(self, number: int) -> Literals:
        return self.prefix[number] if number < len(self.prefix) else self.rest


class Member(NamedTuple):
    path: Path  # orders properties as in the schema
    literals: Literals


class Somewhere(NamedTuple):
    """Some property that no name in `names` and no pattern in `patterns` matches (or that `pattern` matches) has
    such a value."""

    pattern: str | None
    names: frozenset[str]
    patterns: tuple[str, ...]
    literals: Literals
    location: str


@dataclass(frozen=True, slots=True)
class Object:
    TYPE = "object"
    members: Mapping[str, Member] = field(default_factory=dict)
    patterns: Mapping[str, Literals] = field(default_factory=dict)
    rest: Literals = ANYTHING
    required: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    counted: str = ""  # the location of the counting keyword
    somewhere: tuple[Somewhere, ...] = ()


Branch = Null | Boolean | Number | String | Array | Object
EVERY_TYPE: tuple[Branch, ...] = (Null(), Boolean(), Number(), String(), Array(), Object())


def number_fits(branch: Number, value: Any) -> bool:
    """Whether one value is within all of a branch's bounds."""
    exact = Fraction(value)
    is_whole = exact.denominator == 1
    if (branch.is_integer and not is_whole) or (branch.no_integer and is_whole):
        return False
    if branch.low is not None and (exact < branch.low or (branch.is_above_low and exact == branch.low)):
        return False
    if branch.high is not None and (exact > branch.high or (branch.is_below_high and exact == branch.high)):
        return False
    return all(is_multiple(value, each) for each in branch.multiples) and not any(
        is_multiple(value, each.value) for each in branch.no_multiples
    )


def is_multiple(value: Any, of: Any) -> bool:
    # Compare as decimals: 0.3 is a multiple of 0.1.
    return (Fraction(str(value)) / Fraction(str(of))).denominator == 1


def is_dead(branch: Branch) -> bool:
    """Whether obviously no value fits."""
    match branch:
        case Boolean():
            return not branch.values
        case Number():
            return _is_dead_number(branch)
        case String():
            return (branch.longest is not None and branch.longest < branch.shortest) or branch.values == ()
        case Array():
            too_many = branch.most is not None and branch.most < branch.least
            return too_many or any(
                branch.item(number) is None for number in range(min(branch.least, len(branch.prefix) + 1))
            )
        case Object():
            names = len(branch.required)
            if branch.most is not None and (branch.most < branch.least or branch.most < names):
                return True
            return any(known(branch, name) is None for name in branch.required)
    return False


def _is_dead_number(branch: Number) -> bool:
    if branch.values == () or (branch.is_integer and branch.no_integer):
        return True
    if branch.low is None or branch.high is None:
        return False
    return branch.low > branch.high or (branch.low == branch.high and (branch.is_above_low or branch.is_below_high))


def known(branch: Object, name: str) -> Literals:
    """The known constraints on a property's value; for a name that a pattern may match, only its own schema."""
    if name in branch.members:
        return branch.members[name].literals
    return ANYTHING if branch.patterns else branch.rest


def with_values(branch: Number, values: tuple[Any, ...]) -> Number:
    return replace(branch, values=tuple(value for value in values if number_fits(branch, value)))
