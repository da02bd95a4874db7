"""Keywords that apply other schemas to the same value: `$ref`, `allOf`, `anyOf`, `oneOf`, `not` and `if`."""

from collections.abc import Sequence
from dataclasses import dataclass

from .assertion import Assertion, Expansion, Reading
from .branches import Branch, Path
from .document import Literals, Malformed, Refusal, Schema


@dataclass(frozen=True, slots=True)
class _Parts:
    """Schemas, each with its negation."""

    those: tuple[Literals, ...]
    contraries: tuple[Literals, ...]
    expansion: Expansion

    def all_of(self, literals: Sequence[Literals], branch: Branch, path: Path) -> Sequence[Branch]:
        branches: Sequence[Branch] = [branch]
        for number, each in enumerate(literals):
            branches = self.expansion.narrow(each, branches, (*path, number))
        return branches

    def any_of(self, literals: Sequence[Literals], branch: Branch, path: Path) -> Sequence[Branch]:
        branches: list[Branch] = []
        for number, each in enumerate(literals):
            branches += self.expansion.narrow(each, [branch], (*path, number))
        return branches


class _AllOf(_Parts):
    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.all_of(self.those, branch, path)

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.any_of(self.contraries, branch, path)


class _AnyOf(_Parts):
    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.any_of(self.those, branch, path)

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self.all_of(self.contraries, branch, path)


class _OneOf(_Parts):
    """One schema holds, and of the others, those that could hold as well fail."""

    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        ways = [self.expansion.narrow(each, [branch], (*path, n)) for n, each in enumerate(self.those)]
        branches: list[Branch] = []
        for number, found in enumerate(ways):
            for other in range(len(ways)):
                if other != number and not self._are_apart(found, ways[other]):
                    found = self._without(other, found, path)
            branches += found
        return branches

    def _are_apart(self, some: Sequence[Branch], others: Sequence[Branch]) -> bool:
        return all(self.expansion.are_apart(one, other) for one in some for other in others)

    def _without(self, other: int, branches: Sequence[Branch], path: Path) -> list[Branch]:
        found: list[Branch] = []
        for branch in branches:
            if self.expansion.narrow(self.those[other], [branch], path):
                found += self.expansion.narrow(self.contraries[other], [branch], path)
            else:
                found.append(branch)
        return found

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        """None holds, or two do."""
        branches = list(self.all_of(self.contraries, branch, path))
        for number, each in enumerate(self.those):
            found = self.expansion.narrow(each, [branch], (*path, number))
            for other in range(number + 1, len(self.those)):
                branches += self.expansion.narrow(self.those[other], found, (*path, other))
        return branches


@dataclass(frozen=True, slots=True)
class _If:
    condition: tuple[Literals, Literals]  # the condition and its negation
    then: tuple[Literals, Literals]
    otherwise: tuple[Literals, Literals]
    expansion: Expansion

    def holds(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self._narrow(branch, path, 0)

    def fails(self, branch: Branch, path: Path) -> Sequence[Branch]:
        return self._narrow(branch, path, 1)

    def _narrow(self, branch: Branch, path: Path, side: int) -> list[Branch]:
        narrow = self.expansion.narrow
        met = narrow(self.condition[0], [branch], (*path, 0))
        unmet = narrow(self.condition[1], [branch], (*path, 0))
        return narrow(self.then[side], met, (*path, 1)) + narrow(self.otherwise[side], unmet, (*path, 2))


def _pair(value: object, location: str, expansion: Expansion) -> tuple[Literals, Literals]:
    return expansion.literal(value, location), expansion.literal(value, location, holds=False)


def _list_of(kind: type[_AllOf | _AnyOf | _OneOf]) -> Reading:
    def read(value: object, schema: Schema, location: str, expansion: Expansion) -> Assertion:
        if not isinstance(value, list):
            raise Malformed(location, "a list of schemas")
        pairs = [_pair(each, f"{location}/{number}", expansion) for number, each in enumerate(value)]
        return kind(tuple(each for each, _ in pairs), tuple(each for _, each in pairs), expansion)

    return read


def _not(value: object, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    that, contrary = _pair(value, location, expansion)
    return _AllOf((contrary,), (that,), expansion)


def _if(value: object, schema: Schema, location: str, expansion: Expansion) -> Assertion | None:
    if "then" not in schema and "else" not in schema:
        return None
    above = location.rpartition("/")[0]
    then, otherwise = (
        _pair(schema.get(keyword, True), f"{above}/{keyword}", expansion) for keyword in ("then", "else")
    )
    return _If(_pair(value, location, expansion), then, otherwise, expansion)


def _reference(value: object, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    that, contrary = _pair(expansion.target(schema, value), location, expansion)
    return _AllOf((that,), (contrary,), expansion)


def _dynamic(value: object, schema: Schema, location: str, expansion: Expansion) -> Assertion:
    raise Refusal(location, "its meaning depends on how it was reached; use `$ref`")


READINGS: dict[str, Reading] = {
    "$ref": _reference,
    "$dynamicRef": _dynamic,
    "$recursiveRef": _dynamic,
    "allOf": _list_of(_AllOf),
    "anyOf": _list_of(_AnyOf),
    "oneOf": _list_of(_OneOf),
    "not": _not,
    "if": _if,
}
