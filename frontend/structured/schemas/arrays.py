"""Keywords of arrays; those that count or compare items are rewritten as schemas for single positions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import comb, perm
from typing import Any

from .assertion import Assertion, Expansion, OfType, Reading
from .branches import Array, Boolean, Contained, Null, Number, Path, String
from .document import NOTHING, Literals, Malformed, Refusal, Schema, both
from .scalars import count

_MOST_WAYS = 256  # to choose items
_MOST_LISTS = 400  # of distinct items, if their values are known


def _shape(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    """Read `prefixItems` and `items`; before draft 2020-12, `items` could be a list, and `additionalItems` the rest."""
    above = location.rpartition("/")[0]
    first, first_keyword = schema.get("prefixItems", []), "prefixItems"
    rest, rest_keyword = schema.get("items", True), "items"
    if isinstance(rest, list):
        first, first_keyword = rest, "items"
        rest, rest_keyword = schema.get("additionalItems", True), "additionalItems"
    if not isinstance(first, list):
        raise Malformed(f"{above}/prefixItems", "a list of schemas")
    prefix = [expansion.literal(each, f"{above}/{first_keyword}/{n}") for n, each in enumerate(first)]
    others = expansion.literal(rest, f"{above}/{rest_keyword}")

    def narrowed(branch: Array, path: Path) -> Sequence[Array]:
        positions = range(max(len(prefix), len(branch.prefix)))
        items = tuple(both(branch.item(n), prefix[n] if n < len(prefix) else others) for n in positions)
        return (closed(replace(branch, prefix=items, rest=both(branch.rest, others))),)

    def violated(branch: Array, path: Path) -> Iterator[Array]:
        for number, each in enumerate(first):
            if (wrong := expansion.literal(each, location, holds=False)) is not NOTHING:
                yield _with_item(branch, number, wrong)
        if (wrong := expansion.literal(rest, location, holds=False)) is not NOTHING:
            yield _containing(branch, Contained(wrong, others, 1, None, len(first), f"{above}/{rest_keyword}"))

    return OfType(Array, narrowed, lambda branch, path: list(violated(branch, path)))


def closed(branch: Array) -> Array:
    """End the array before the first position at which nothing is valid."""
    number = next((n for n, each in enumerate(branch.prefix) if each is NOTHING), None)
    if number is None and branch.rest is NOTHING:
        number = len(branch.prefix)
    if number is None:
        return branch
    most = number if branch.most is None else min(branch.most, number)
    return replace(branch, prefix=branch.prefix[:number], rest=NOTHING, most=most)


def _with_item(branch: Array, number: int, literals: Literals) -> Array:
    """Require a valid item at this position."""
    prefix = [branch.item(n) for n in range(max(number + 1, len(branch.prefix)))]
    prefix[number] = both(prefix[number], literals)
    return replace(branch, prefix=tuple(prefix), least=max(branch.least, number + 1))


def _containing(branch: Array, contained: Contained) -> Array:
    return replace(branch, contained=(*branch.contained, contained))


def _items(is_most: bool) -> Reading:
    def at_least(branch: Array, items: int) -> Sequence[Array]:
        return (replace(branch, least=max(branch.least, items)),)

    def at_most(branch: Array, items: int) -> Sequence[Array]:
        return (replace(branch, most=items if branch.most is None else min(branch.most, items)),) if items >= 0 else ()

    def read(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion:
        items = count(value, location)
        if is_most:
            return OfType(Array, lambda b, path: at_most(b, items), lambda b, path: at_least(b, items + 1))
        return OfType(Array, lambda b, path: at_least(b, items), lambda b, path: at_most(b, items - 1))

    return read


def _contains(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    above = location.rpartition("/")[0]
    least = count(schema.get("minContains", 1), f"{above}/minContains")
    most = count(schema["maxContains"], f"{above}/maxContains") if "maxContains" in schema else None
    if least == 0 and most is None:
        return None
    wanted, others = expansion.literal(value, location), expansion.literal(value, location, holds=False)

    def narrowed(branch: Array, path: Path) -> Sequence[Array]:
        if most is not None and most < least:
            return ()
        return (_containing(branch, Contained(wanted, others, least, most, 0, location)),)

    def violated(branch: Array, path: Path) -> Iterator[Array]:
        if least > 0:
            yield _containing(branch, Contained(wanted, others, 0, least - 1, 0, location))
        if most is not None:
            yield _containing(branch, Contained(wanted, others, most + 1, None, 0, location))

    return OfType(Array, narrowed, lambda branch, path: list(violated(branch, path)))


def _unique(value: Any, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    if value is False:
        return None
    if value is not True:
        raise Malformed(location, "true or false")

    def violated(branch: Array, path: Path) -> Sequence[Array]:
        if branch.most is not None and branch.most < 2:
            return ()
        raise Refusal(location, "whether two items are equal is not known before both are written")

    return OfType(Array, lambda branch, path: (replace(branch, unique=branch.unique or location),), violated)


READINGS: dict[str, Reading] = {
    "items": _shape,
    "prefixItems": _shape,
    "minItems": _items(False),
    "maxItems": _items(True),
    "contains": _contains,
    "uniqueItems": _unique,
}


# --- written as positions ---------------------------------------------------------------------------------------------


def finished(branch: Array, expansion: Expansion) -> list[Array]:
    """The same arrays, in branches without counts and comparisons."""
    branches = [replace(branch, contained=(), unique=None)]
    for contained in branch.contained:
        branches = [found for each in branches for found in _with_contained(each, contained, expansion)]
        if len(branches) > _MOST_WAYS:
            raise Refusal(contained.location, f"the items could be chosen in more than {_MOST_WAYS} ways")
    if branch.unique is None:
        return branches
    return [found for each in branches for found in _unrepeated(each, branch.unique, expansion)]


def _with_contained(branch: Array, contained: Contained, expansion: Expansion) -> list[Array]:
    if contained.most == 0:
        others = branch.prefix[: contained.start] + tuple(
            both(each, contained.others) for each in branch.prefix[contained.start :]
        )
        missing = contained.start - len(others)
        others += (branch.rest,) * (missing if branch.most is None else min(missing, branch.most))
        return [closed(replace(branch, prefix=others, rest=both(branch.rest, contained.others)))]
    if contained.most is None and _is_contained_anyway(branch, contained, expansion):
        return [branch]
    if _cannot_be_contained(branch, contained, expansion):
        return []
    if branch.most is None:
        raise Refusal(contained.location, "without a small `maxItems` next to it, the items may be at any position")
    if contained.most is None:
        return _chosen(branch, contained)
    lengths = range(max(branch.least, contained.least + contained.start), branch.most + 1)
    if 1 << max(branch.most - contained.start, 0) > _MOST_WAYS:
        raise Refusal(contained.location, f"the items could be chosen in more than {_MOST_WAYS} ways")
    return [found for length in lengths for found in _counted(branch, contained, length)]


def _is_contained_anyway(branch: Array, contained: Contained, expansion: Expansion) -> bool:
    """Whether enough of the required items are bound to be valid."""
    positions = range(contained.start, branch.least)
    if contained.least > len(positions) or len(positions) > _MOST_WAYS:
        return False
    sure = sum(expansion.is_empty(both(branch.item(number), contained.others)) for number in positions)
    return sure >= contained.least


def _cannot_be_contained(branch: Array, contained: Contained, expansion: Expansion) -> bool:
    positions = (*branch.prefix[contained.start :], branch.rest)
    return contained.least > 0 and all(expansion.is_empty(both(each, contained.literals)) for each in positions)


def _chosen(branch: Array, contained: Contained) -> list[Array]:
    """At least this many matching items: one branch for every combination of positions."""
    positions = range(contained.start, branch.most or 0)
    if comb(len(positions), min(contained.least, len(positions))) > _MOST_WAYS:
        raise Refusal(contained.location, f"the items could be chosen in more than {_MOST_WAYS} ways")
    branches = []
    for chosen in combinations(positions, contained.least):
        found = branch
        for number in chosen:
            found = _with_item(found, number, contained.literals)
        branches.append(found)
    return branches


def _counted(branch: Array, contained: Contained, length: int) -> Iterator[Array]:
    """Arrays of one length in which exactly these items are valid."""
    positions = range(contained.start, length)
    most = len(positions) if contained.most is None else contained.most
    for items in range(contained.least, most + 1):
        for chosen in combinations(positions, items):
            prefix = [branch.item(number) for number in range(length)]
            for number in positions:
                prefix[number] = both(prefix[number], contained.literals if number in chosen else contained.others)
            if NOTHING not in prefix:
                yield replace(branch, prefix=tuple(prefix), least=length, most=length)


def _unrepeated(branch: Array, location: str, expansion: Expansion) -> list[Array]:
    if branch.most is not None and branch.most < 2:
        return [branch]
    if branch.most is not None and branch.most <= 24:
        items = [branch.item(number) for number in range(branch.most)]
        if all(expansion.is_empty(both(one, other)) for one, other in combinations(items, 2)):
            return [branch]
    values = _known_values(branch, expansion)
    if values is None:
        raise Refusal(location, "its items may have many values, and all of them would have to be remembered")
    return _lists(branch, values, location, expansion)


def _known_values(branch: Array, expansion: Expansion) -> list[Any] | None:
    """All values that any item can have, if there are few."""
    values: list[Any] = []
    for literals in {*branch.prefix, branch.rest}:
        for found in expansion.branches(literals):
            match found:
                case Null():
                    values.append(None)
                case Boolean():
                    values.extend(found.values)
                case Number(values=known) if known is not None:
                    values.extend(known)
                case String(values=known, patterns=(), formats=()) if known is not None:
                    values.extend(known)
                case _:
                    return None
    # True and 1 are one key in Python, but two values.
    return list({(isinstance(value, bool), value): value for value in values}.values())


def _lists(branch: Array, values: list[Any], location: str, expansion: Expansion) -> list[Array]:
    longest = len(values) if branch.most is None else min(branch.most, len(values))
    lengths = range(branch.least, longest + 1)
    if len(lengths) > 64 or sum(perm(len(values), length) for length in lengths) > _MOST_LISTS:
        raise Refusal(location, f"its items can be arranged without repetition in more than {_MOST_LISTS} ways")
    constants = {number: expansion.literal({"const": value}, location) for number, value in enumerate(values)}
    found = []
    for length in lengths:
        for order in permutations(range(len(values)), length):
            prefix = tuple(both(branch.item(n), constants[each]) for n, each in enumerate(order))
            found.append(replace(branch, prefix=prefix, rest=NOTHING, least=length, most=length))
    return found
