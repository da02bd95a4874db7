"""Expands schemas into branches, keyword by keyword.

A value's constraints are a conjunction of literals. `branches` returns the branches of one, each narrowed by every
keyword of every literal; those that obviously fit no value are left out. A conjunction that contains itself (a tree, a
list) is expanded once, so expansion ends. All work is counted and bounded.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....protocol.errors import RequestError
from . import applicators, arrays, counts, objects, scalars
from .assertion import Assertion, Expansion, Narrowing
from .automata import Unreadable, matches
from .branches import EVERY_TYPE, Array, Boolean, Branch, KeywordValue, Number, Object, Path, String, is_dead, known
from .document import ANYTHING, NOTHING, Document, Literal, Literals, Refusal, Schema
from .expressions import expression, other_texts

_MOST_LEVELS = 64  # of schemas that apply to one value, or to its parts while checking whether it has any values
_LEVELS_LOOKED_AT = 24
_MOST_BRANCHES = 512

_READINGS = {**scalars.READINGS, **arrays.READINGS, **objects.READINGS, **applicators.READINGS}
# The order of narrowing: keywords that split branches come when there are few, those that need bounds come after
# bounds.
_RANKS = {
    **dict.fromkeys(_READINGS, 1),
    **dict.fromkeys(("type", "const", "enum", "minItems", "maxItems", "required"), 0),
    **dict.fromkeys(("contains", "uniqueItems", "multipleOf", "format", "minProperties", "maxProperties"), 2),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas", *applicators.READINGS), 3),
}


class Expander:
    def __init__(self, document: Document, most_work: int) -> None:
        self._document = document
        self._assertions: dict[int, list[tuple[int, Assertion]]] = {}
        self._branches: dict[Literals, list[Branch]] = {}
        self._is_empty: dict[Literals, bool] = {}
        self._known_values: dict[Literals, frozenset[Any] | None] = {}
        self._entered: set[Literals] = set()
        self._level = 0
        self._work = 0
        self._most_work = most_work + 16 * document.size

    # --- what keywords need
    # -----------------------------------------------------------------------------------------------

    def literal(self, schema: Any, location: str, *, holds: bool = True) -> Literals:
        return self._document.literal(schema, location, holds=holds)

    def target(self, schema: Schema, reference: Any) -> Any:
        return self._document.target(schema, reference)

    def narrow(self, literals: Literals, branches: Iterable[Branch], path: Path) -> list[Branch]:
        if literals is NOTHING:
            return []
        found = list(branches)
        for literal in literals:
            found = self._narrow_by(literal, found, path)
        return found

    def matches(self, pattern: str, text: str) -> bool:
        """Match a text; raises `Unreadable`."""
        self._spend(1 + len(pattern) * len(text) // 20)
        return matches(pattern, text)

    def expression(self, found: Sequence[str], not_found: Sequence[str]) -> str:
        """Write an expression; raises `Unreadable`."""
        self._spend(1000)
        return expression(tuple(found), tuple(not_found))

    def are_apart(self, one: Branch, other: Branch) -> bool:
        """Whether obviously no value fits both: by type, or by a property's values."""
        if type(one) is not type(other):
            return True
        if not isinstance(one, Object) or not isinstance(other, Object):
            return False
        for name in {*one.required, *other.required}:
            if name in one.members and name in other.members:
                left, right = (self._values(each.members[name].literals) for each in (one, other))
                if left is not None and right is not None and not left & right:
                    return True
        return False

    def _values(self, literals: Literals) -> frozenset[Any] | None:
        """All its values, if it is limited to some."""
        if literals not in self._known_values:
            branches = () if literals in self._entered else self.branches(literals)
            known = [each.values for each in branches if isinstance(each, (Boolean, Number, String))]
            if not known or len(known) < len(branches) or None in known:
                self._known_values[literals] = None
            else:
                # True and 1 are one key in Python, but two values.
                values = ((isinstance(value, bool), value) for some in known for value in some or ())
                self._known_values[literals] = frozenset(values)
        return self._known_values[literals]

    def kept(self, branches: Iterable[Branch], narrowed: Narrowing, path: Path) -> list[Branch]:
        """Expand each branch, and keep those that some value may fit."""
        kept: list[Branch] = []
        for branch in branches:
            for found in narrowed(branch, path):
                self._spend(1 + _size(found) // 8)
                if not self._is_hopeless(found):
                    kept.append(found)
        if len(kept) > _MOST_BRANCHES:
            raise RequestError(
                f"json: this schema comes to more than {_MOST_BRANCHES} cases for one value; use a simpler one."
            )
        return kept

    def branches(self, literals: Literals) -> Sequence[Branch]:
        """All branches, finished: nothing is left to be counted or searched."""
        if literals is NOTHING:
            return ()
        if literals == ANYTHING:
            return EVERY_TYPE
        if literals not in self._branches:
            found: list[Branch] = list(EVERY_TYPE)
            for number, literal in enumerate(literals):
                found = self._narrow_by(literal, found, (number,))
            finished = [each for branch in found for each in self._finished(branch)]
            self._branches[literals] = [each for each in finished if not self._is_hopeless(each)]
        return self._branches[literals]

    def is_empty(self, literals: Literals) -> bool:
        """Whether certainly no value fits; a recursive or deep one is assumed to have values."""
        if not literals:
            return literals is NOTHING
        if literals not in self._is_empty:
            if literals in self._entered or self._level > _LEVELS_LOOKED_AT:
                return False
            self._entered.add(literals)
            try:
                self._is_empty[literals] = not self.branches(literals)
            finally:
                self._entered.discard(literals)
        return self._is_empty[literals]

    # --- the expansion
    # ----------------------------------------------------------------------------------------------------

    def _narrow_by(self, literal: Literal, branches: list[Branch], path: Path) -> list[Branch]:
        if self._level >= _MOST_LEVELS:
            location = self._document.location(self._document.schema(literal))
            raise Refusal(location, f"more than {_MOST_LEVELS} schemas lead from one to the next")
        self._level += 1
        try:
            assertions = self._of(literal)
            if literal > 0:
                for number, assertion in assertions:
                    branches = self.kept(branches, assertion.holds, (*path, number))
                return branches
            # The first failures: item counts and required names are narrowed before items and values fail.
            failed: list[Branch] = []
            for number, assertion in assertions:
                failed += self.kept(branches, assertion.fails, (*path, number))
                if assertion is not assertions[-1][1]:
                    branches = self.kept(branches, assertion.holds, (*path, number))
            return failed
        finally:
            self._level -= 1

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > self._most_work:
            raise RequestError(
                "json: this schema takes too long to be written without `oneOf`, `not` and the like; use a simpler one."
            )

    def _of(self, literal: Literal) -> list[tuple[int, Assertion]]:
        number = abs(literal)
        if number not in self._assertions:
            self._assertions[number] = list(self._read(self._document.schema(literal)))
        return self._assertions[number]

    def _read(self, schema: Schema) -> Iterator[tuple[int, Assertion]]:
        """Each keyword that asserts something, with its position in the text, in the order of narrowing."""
        self._spend(1)
        location = self._document.location(schema)
        keywords = ["$ref"] if self._document.is_reference_alone(schema) else list(schema)
        order = {keyword: number for number, keyword in enumerate(keywords)}
        known = set()
        for keyword in sorted(_RANKS.keys() & order, key=lambda each: (_RANKS[each], order[each])):
            reading = _READINGS[keyword]
            # Some keywords depend on each other: they are read together, at the position of the main one.
            together = [each for each in _SHAPES.get(reading, ()) if each in order]
            if reading in known:
                continue
            known.update([reading] if together else [])
            if (assertion := reading(schema[keyword], schema, f"{location}/{keyword}", self)) is not None:
                yield order[together[0] if together else keyword], assertion

    def _finished(self, branch: Branch) -> Sequence[Branch]:
        match branch:
            case String():
                return finished(branch, self)
            case Number():
                return finished_number(branch)
            case Array():
                return arrays.finished(branch, self)
            case Object():
                return counts.finished(branch, self)
        return (branch,)

    def _is_hopeless(self, branch: Branch) -> bool:
        if is_dead(branch):
            return True
        match branch:
            case Array():
                return any(self.is_empty(branch.item(n)) for n in range(min(branch.least, len(branch.prefix) + 1)))
            case Object():
                return any(self.is_empty(known(branch, name)) for name in branch.required)
        return False


def _size(branch: Branch) -> int:
    match branch:
        case Object():
            return len(branch.members)
        case Array():
            return len(branch.prefix)
        case Number() | String():
            return len(branch.values or ())
    return 1


_SHAPES = {
    objects.READINGS["properties"]: ("properties", "patternProperties", "additionalProperties"),
    arrays.READINGS["items"]: ("prefixItems", "items"),
}


# --- excluded values -------------------------------------------------------------------------------------------------
# Excluded strings and numbers are rewritten as allowed ones.


def finished(branch: String, expansion: Expansion) -> Sequence[String]:
    """The same strings, expressed without a negation."""
    unwanted = [each for each in branch.no_patterns if each.value is not None]
    if len(unwanted) < len(branch.no_patterns):
        location = next(each.location for each in branch.no_patterns if each.value is None)
        raise Refusal(location, "no expression matches the texts that don't have this format")
    patterns = list(branch.patterns)
    for each in unwanted:
        try:
            patterns.append(KeywordValue(expansion.expression((), (each.value,)), each.location))
        except Unreadable as error:
            raise Refusal(each.location, f"the negation of this expression can't be written: {error}") from None
    if branch.values is None and branch.no_values:
        try:
            others = other_texts(tuple(each.value for each in branch.no_values))
            patterns.append(KeywordValue(others, branch.no_values[0].location))
        except Unreadable as error:
            raise Refusal(branch.no_values[0].location, f"all other strings can't be written: {error}") from None
    return (replace(branch, patterns=tuple(patterns), no_patterns=(), no_values=()),)


def finished_number(branch: Number) -> Sequence[Number]:
    if branch.values is None and branch.no_integer:
        raise Refusal(branch.no_integer.location, "a grammar can't distinguish numbers from integers")
    if branch.values is None and branch.no_multiples:
        raise Refusal(branch.no_multiples[0].location, "a grammar can't exclude multiples")
    if not branch.is_integer and branch.values is None and _is_beside_an_integer(branch):
        raise RequestError(
            f"json: numbers between {branch.low} and {branch.high} without the integer itself (exclusiveMinimum or "
            "exclusiveMaximum) can't be enforced exactly, and isn't ignored."
        )
    return (replace(branch, no_integer=None, no_multiples=()),)


def _is_beside_an_integer(branch: Number) -> bool:
    """Between an excluded integer and the next one: there the compiler would allow the integer."""
    if branch.low is None or branch.high is None:
        return False
    is_above = branch.is_above_low and branch.low >= 0 and branch.low % 1 == 0 and branch.high < branch.low + 1
    return is_above or (
        branch.is_below_high and branch.high <= 0 and branch.high % 1 == 0 and branch.low > branch.high - 1
    )
