"""Keywords of objects, except those that count or look for properties (`counts.py`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .assertion import Assertion, Expansion, OfType, Reading
from .automata import Unreadable
from .branches import Member, Object, Path, Somewhere, String
from .document import ANYTHING, NOTHING, Literals, Malformed, Refusal, Schema, both
from .expressions import split_look_ahead
from .scalars import count

_Shape = tuple[Mapping[str, Member], Mapping[str, Literals], Literals]  # members, patterns, and the rest
_EVALUATING = {
    "$ref", "allOf", "anyOf", "dependencies", "dependentSchemas", "if", "not", "oneOf",
}  # fmt: skip


def _shape(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    """Read `properties`, `patternProperties` and `additionalProperties`, which depend on each other."""
    above = location.rpartition("/")[0]
    named, patterned = (_schemas(schema, keyword, above) for keyword in ("properties", "patternProperties"))
    patterned = {_without_look_ahead(pattern, above, expansion): each for pattern, each in patterned.items()}
    rest_keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
    rest = schema.get(rest_keyword, True)

    def literals(each: Any, where: str, *, holds: bool = True) -> Literals:
        return expansion.literal(each, f"{above}/{where}", holds=holds)

    members = {name: literals(each, f"properties/{name}") for name, each in named.items()}
    patterns = {pattern: literals(each, f"patternProperties/{pattern}") for pattern, each in patterned.items()}
    others = literals(rest, rest_keyword)

    def narrowed(branch: Object, path: Path) -> Sequence[Object]:
        placed = {name: Member((*path, number), each) for number, (name, each) in enumerate(members.items())}
        return (met(branch, (placed, patterns, others), above, expansion),)

    def violated(branch: Object, path: Path) -> Iterator[Object]:
        for name, each in named.items():
            if (wrong := literals(each, f"properties/{name}", holds=False)) is not NOTHING:
                yield with_member(branch, name, wrong, above, expansion)
        for pattern, each in patterned.items():
            where = f"{above}/patternProperties/{pattern}"
            if (wrong := literals(each, f"patternProperties/{pattern}", holds=False)) is not NOTHING:
                yield _somewhere(branch, Somewhere(pattern, frozenset(), (), wrong, where))
        if (wrong := literals(rest, rest_keyword, holds=False)) is not NOTHING:
            names, expressions = frozenset(named), tuple(patterned)
            yield _somewhere(branch, Somewhere(None, names, expressions, wrong, f"{above}/{rest_keyword}"))

    return OfType(Object, narrowed, lambda branch, path: list(violated(branch, path)))


def _without_look_ahead(pattern: str, above: str, expansion: Expansion) -> str:
    try:
        rest, ahead, not_ahead = split_look_ahead(pattern)
        return expansion.expression((rest, *ahead), not_ahead) if ahead or not_ahead else pattern
    except Unreadable as error:
        why = f"{pattern[:200]!r} can't be written without its look-ahead: {error}"
        raise Refusal(f"{above}/patternProperties", why) from None


def _schemas(schema: Schema, keyword: str, above: str) -> Mapping[str, Any]:
    value = schema.get(keyword, {})
    if not isinstance(value, Mapping):
        raise Malformed(f"{above}/{keyword}", "an object of schemas")
    return value


def _unevaluated(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    if value is True or value == {} or "additionalProperties" in schema:
        return None
    if _EVALUATING & set(schema):
        raise Refusal(location, "which properties the schemas next to it have evaluated depends on the output")
    return _shape(value, schema, location, expansion)


def _unevaluated_items(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    if value is True or value == {} or ("items" in schema and not isinstance(schema["items"], list)):
        return None
    raise Refusal(location, "which items the schemas next to it have evaluated depends on the output; use `items`")


def _somewhere(branch: Object, somewhere: Somewhere) -> Object:
    return replace(branch, somewhere=(*branch.somewhere, somewhere))


# After everything that the schema names: properties required by a negation have no position of their own.
LAST: Path = (1 << 30,)


def with_member(branch: Object, name: str, literals: Literals, location: str, expansion: Expansion) -> Object:
    """Require the property, with a valid value."""
    required = branch.required if name in branch.required else (*branch.required, name)
    if literals == ANYTHING:
        return replace(branch, required=required)
    return met(replace(branch, required=required), ({name: Member(LAST, literals)}, {}, ANYTHING), location, expansion)


def without_member(branch: Object, name: str, location: str, expansion: Expansion) -> Object:
    return met(branch, ({name: Member(LAST, NOTHING)}, {}, ANYTHING), location, expansion)


# --- two shapes combined ----------------------------------------------------------------------------------------------


def met(branch: Object, shape: _Shape, location: str, expansion: Expansion) -> Object:
    """The objects of the branch that also have this shape.

    A property's own schema is kept apart from those of the patterns that match its name: the compiler joins them. So if
    a pattern is narrowed or left out here, it must be known which names it matches.
    """
    own: _Shape = (branch.members, branch.patterns, branch.rest)
    members = _members(own, shape, location, expansion)
    rest = both(own[2], shape[2])
    patterns: dict[str, Literals] = {}
    for pattern in {**own[1], **shape[1]}:
        if pattern in own[1] and pattern in shape[1]:
            patterns[pattern] = both(own[1][pattern], shape[1][pattern])
            continue
        side, other = (own, shape) if pattern in own[1] else (shape, own)
        literals = side[1][pattern]
        if other[2] == ANYTHING:
            patterns[pattern] = literals
            continue
        meant = [name for name in members if _means(pattern, name, location, expansion)]
        for name in meant:
            members[name] = Member(members[name].path, both(members[name].literals, literals))
        if rest is NOTHING and other[2] is NOTHING and not other[1]:
            continue  # its other names are not allowed at all
        if any(name in other[0] for name in meant):
            raise Refusal(location, f"the expression {pattern[:200]!r} matches properties that are named next to it")
        patterns[pattern] = both(literals, other[2])
    return replace(branch, members=members, patterns=patterns, rest=rest)


def _members(own: _Shape, shape: _Shape, location: str, expansion: Expansion) -> dict[str, Member]:
    members: dict[str, Member] = {}
    for name in {**own[0], **shape[0]}:
        left, right = own[0].get(name), shape[0].get(name)
        paths = [each.path for each in (left, right) if each]
        literals = [
            each.literals if each else _of_others(side, name, location, expansion)
            for each, side in ((left, own), (right, shape))
        ]
        members[name] = Member(min(paths), both(literals[0], literals[1]))
    return members


def _of_others(shape: _Shape, name: str, location: str, expansion: Expansion) -> Literals:
    """A shape's literals for a name that it doesn't have, except for its patterns, which are joined later."""
    _, patterns, rest = shape
    if rest == ANYTHING or any(_means(pattern, name, location, expansion) for pattern in patterns):
        return ANYTHING
    return rest


def _means(pattern: str, name: str, location: str, expansion: Expansion) -> bool:
    try:
        return expansion.matches(pattern, name)
    except Unreadable as error:
        raise Refusal(
            location, f"whether the expression {pattern[:200]!r} matches {name[:200]!r} is unclear: {error}"
        ) from None


# --- names ------------------------------------------------------------------------------------------------------------


def _required(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    names = _names(value, location)

    def narrowed(branch: Object, path: Path) -> Sequence[Object]:
        return (replace(branch, required=tuple(dict.fromkeys((*branch.required, *names)))),)

    def violated(branch: Object, path: Path) -> Sequence[Object]:
        return [without_member(branch, name, location, expansion) for name in names if name not in branch.required]

    return OfType(Object, narrowed, violated)


def _names(value: Any, location: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Malformed(location, "a list of names")
    return value


def _property_names(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    names = expansion.literal(value, location)
    if names == ANYTHING:
        return None
    other_names = expansion.literal(value, location, holds=False)

    def narrowed(branch: Object, path: Path) -> Sequence[Object]:
        found = [each for each in expansion.branches(names) if isinstance(each, String)]
        if String() in found:
            return (branch,)
        listed = [name for each in found for name in each.values or () if not each.patterns and not each.formats]
        expression = _expression(
            [each for each in found if each.values is None or each.patterns or each.formats], location, expansion
        )
        placed = {name: Member((*path, number), ANYTHING) for number, name in enumerate(listed)}
        shape: _Shape = (placed, {expression: ANYTHING} if expression else {}, NOTHING)
        return (met(branch, shape, location, expansion),)

    def violated(branch: Object, path: Path) -> Sequence[Object]:
        found = [each for each in expansion.branches(other_names) if isinstance(each, String)]
        if any(each.values is None or each.patterns for each in found):
            raise Refusal(location, "whether some property has another name is not known before all are written")
        listed = [name for each in found for name in each.values or ()]
        return [with_member(branch, name, ANYTHING, location, expansion) for name in listed]

    return OfType(Object, narrowed, violated)


def _expression(found: list[String], location: str, expansion: Expansion) -> str:
    """One expression for all of these strings."""
    expressions = []
    for each in found:
        patterns = [pattern.value for pattern in each.patterns]
        if each.shortest or each.longest is not None:
            patterns.append(f"^[\\s\\S]{{{each.shortest},{'' if each.longest is None else each.longest}}}$")
        if each.formats or each.values is not None:
            raise Refusal(location, "such a rule for names can't be written as an expression")
        try:
            expressions.append(patterns[0] if len(patterns) == 1 else expansion.expression(patterns, ()))
        except Unreadable as error:
            raise Refusal(location, f"its rules for a name can't be written as one expression: {error}") from None
    return expressions[0] if len(expressions) == 1 else "|".join(f"(?:{each})" for each in expressions)


def _dependent(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    """Read `dependencies`, or one of the two keywords that replaced it."""
    if not isinstance(value, Mapping):
        raise Malformed(location, "an object of schemas or names")
    asserting = {name: each for name, each in value.items() if each not in (True, [], {})}
    if not asserting:
        return None
    return _Dependent(asserting, location, expansion)


class _Dependent:
    def __init__(self, value: Mapping[str, Any], location: str, expansion: Expansion) -> None:
        self.location = location
        self.expansion = expansion
        self.meant = {
            name: {"required": _names(each, f"{location}/{name}")} if isinstance(each, list) else each
            for name, each in value.items()
        }

    def holds(self, branch: Any, path: Path) -> Sequence[Any]:
        if not isinstance(branch, Object):
            return (branch,)
        branches: list[Any] = [branch]
        for number, name in enumerate(self.meant):
            branches = self.expansion.kept(branches, partial(self._either, name), (*path, number))
        return branches

    def _either(self, name: str, branch: Object, path: Path) -> list[Any]:
        found: list[Any] = []
        if name not in branch.required:
            found.append(without_member(branch, name, self.location, self.expansion))
        if name not in branch.members or branch.members[name].literals is not NOTHING:
            found += self._present(branch, name, path, holds=True)
        return found

    def fails(self, branch: Any, path: Path) -> Sequence[Any]:
        if not isinstance(branch, Object):
            return ()
        return [
            found
            for number, name in enumerate(self.meant)
            for found in self._present(branch, name, (*path, number), holds=False)
        ]

    def _present(self, branch: Object, name: str, path: Path, *, holds: bool) -> Sequence[Any]:
        present = with_member(branch, name, ANYTHING, self.location, self.expansion)
        literals = self.expansion.literal(self.meant[name], f"{self.location}/{name}", holds=holds)
        return self.expansion.narrow(literals, [present], path)


def _properties(is_most: bool) -> Reading:
    def at_least(branch: Object, number: int, location: str) -> Sequence[Object]:
        return (replace(branch, least=max(branch.least, number), counted=location),)

    def at_most(branch: Object, number: int, location: str) -> Sequence[Object]:
        most = number if branch.most is None else min(branch.most, number)
        return (replace(branch, most=most, counted=location),) if number >= 0 else ()

    def read(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
        number = count(value, location)
        if is_most:
            return OfType(
                Object, lambda b, path: at_most(b, number, location), lambda b, path: at_least(b, number + 1, location)
            )
        return OfType(
            Object, lambda b, path: at_least(b, number, location), lambda b, path: at_most(b, number - 1, location)
        )

    return read


READINGS: dict[str, Reading] = {
    "properties": _shape,
    "patternProperties": _shape,
    "additionalProperties": _shape,
    "unevaluatedProperties": _unevaluated,
    "unevaluatedItems": _unevaluated_items,
    "required": _required,
    "propertyNames": _property_names,
    "dependencies": _dependent,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "minProperties": _properties(False),
    "maxProperties": _properties(True),
}
