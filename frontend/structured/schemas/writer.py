"""Writes branches as a schema with only the keywords that the engine's compiler supports.

Parts that are used several times, or that contain themselves, become definitions; all others are written inline.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .branches import EVERY_TYPE, Array, Boolean, Branch, Number, Object, String
from .document import ANYTHING, NOTHING, Document, Literals
from .expansion import Expander

_MOST_LEVELS = 40  # of nested inline parts


class _Writer:
    def __init__(self, root: Any, most_work: int) -> None:
        self._expander = Expander(Document(root), most_work)
        self._root = self._expander.literal(root, "#")
        self._meant = self._counted()
        self._names: dict[Literals, str] = {}
        self._todo: list[Literals] = []

    def schema(self) -> Any:
        written = self._written(self._root, 0, frozenset([self._root]))
        definitions = {}
        while self._todo:
            literals = self._todo.pop()
            definitions[self._names[literals]] = self._written(literals, 1, frozenset([literals]))
        if not definitions or not isinstance(written, dict):
            return written
        return {**written, "$defs": definitions}

    def _counted(self) -> Counter[Literals]:
        """Count how often each part is used."""
        meant: Counter[Literals] = Counter([self._root])
        todo = [self._root]
        while todo:
            for branch in self._expander.branches(todo.pop()):
                for part in _parts(branch):
                    meant[part] += 1
                    if meant[part] == 1:
                        todo.append(part)
        return meant

    def _part(self, literals: Literals, level: int, above: frozenset[Literals]) -> Any:
        if literals is NOTHING or literals == ANYTHING:
            return literals is not NOTHING
        branches = self._expander.branches(literals)
        if not branches:
            return False
        is_small = not any(isinstance(each, (Array, Object)) for each in branches)
        if is_small or (self._meant[literals] == 1 and level < _MOST_LEVELS and literals not in above):
            return self._written(literals, level + 1, above | {literals})
        if literals not in self._names:
            self._names[literals] = str(len(self._names))
            self._todo.append(literals)
        return {"$ref": f"#/$defs/{self._names[literals]}"}

    def _written(self, literals: Literals, level: int, above: frozenset[Literals]) -> Any:
        branches = list(dict.fromkeys(map(_ByContent, self._expander.branches(literals))))
        return _joined([(each.branch, self._branch(each.branch, level, above)) for each in branches])

    def _branch(self, branch: Branch, level: int, above: frozenset[Literals]) -> dict[str, Any]:
        match branch:
            case Number():
                return dict(_number(branch))
            case String():
                return dict(_string(branch))
            case Array():
                return dict(self._array(branch, level, above))
            case Object():
                return dict(self._object(branch, level, above))
        return {}

    def _array(self, branch: Array, level: int, above: frozenset[Literals]) -> Iterator[tuple[str, Any]]:
        if branch.prefix:
            yield "prefixItems", [self._part(each, level, above) for each in branch.prefix]
        if branch.rest != ANYTHING:
            yield "items", self._part(branch.rest, level, above)
        if branch.least:
            yield "minItems", branch.least
        if branch.most is not None:
            yield "maxItems", branch.most

    def _object(self, branch: Object, level: int, above: frozenset[Literals]) -> Iterator[tuple[str, Any]]:
        if branch.members:
            members = sorted(branch.members.items(), key=lambda item: item[1].path)
            yield "properties", {name: self._part(member.literals, level, above) for name, member in members}
        if branch.patterns:
            yield "patternProperties", {name: self._part(each, level, above) for name, each in branch.patterns.items()}
        if branch.rest != ANYTHING:
            yield "additionalProperties", self._part(branch.rest, level, above)
        if branch.required:
            yield "required", list(branch.required)
        if branch.least > len(branch.required):
            yield "minProperties", branch.least
        if branch.most is not None:
            yield "maxProperties", branch.most


class _ByContent:
    """A branch, equal to others with the same content."""

    __slots__ = ("branch", "_text")

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self._text = repr(branch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def _parts(branch: Branch) -> Iterator[Literals]:
    match branch:
        case Array():
            yield from (each for each in (*branch.prefix, branch.rest) if each)
        case Object():
            members = (member.literals for member in branch.members.values())
            yield from (each for each in (*members, *branch.patterns.values(), branch.rest) if each)


def _number(branch: Number) -> Iterator[tuple[str, Any]]:
    if branch.low is not None:
        yield "exclusiveMinimum" if branch.is_above_low else "minimum", branch.low
    if branch.high is not None:
        yield "exclusiveMaximum" if branch.is_below_high else "maximum", branch.high
    if branch.multiples:
        yield "multipleOf", branch.multiples[0]
    if len(branch.multiples) > 1:
        yield "allOf", [{"multipleOf": each} for each in branch.multiples[1:]]


def _string(branch: String) -> Iterator[tuple[str, Any]]:
    if branch.shortest and branch.values is None:
        yield "minLength", branch.shortest
    if branch.longest is not None and branch.values is None:
        yield "maxLength", branch.longest
    expressions = [("pattern", each.value) for each in branch.patterns]
    expressions += [("format", each) for each in branch.formats]
    yield from expressions[:1]
    if len(expressions) > 1:
        yield "allOf", [dict([each]) for each in expressions[1:]]


def _joined(branches: Sequence[tuple[Branch, dict[str, Any]]]) -> Any:
    """Join into one schema: alternatives if one type has several branches, or if keywords of two types can't be
    combined."""
    if [branch for branch, _ in branches] == list(EVERY_TYPE):
        return True
    values: list[Any] = []
    types: list[str] = []
    keywords: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for branch, said in branches:
        constants = _constants(branch)
        if constants is not None and not said:
            values.extend(constants)
        elif constants is not None:
            others.append({"enum": constants, **said})
        elif (
            (name := _type(branch)) in types
            or ("integer" in (*types, name) and "number" in (*types, name))
            or set(keywords) & set(said)
        ):
            others.append({"type": name, **said})
        else:
            types.append(name)
            keywords |= said
    if types:
        others.insert(0, {"type": types[0] if len(types) == 1 else types, **keywords})
    if values:
        others.append({"enum": values})
    if not others:
        return False
    return others[0] if len(others) == 1 else {"anyOf": others}


def _type(branch: Branch) -> str:
    return "integer" if isinstance(branch, Number) and branch.is_integer else branch.TYPE


def _constants(branch: Branch) -> list[Any] | None:
    match branch:
        case Boolean() if len(branch.values) == 1:
            return list(branch.values)
        case Number() | String() if branch.values is not None:
            return list(branch.values)
    return None


def written(schema: Any, most_work: int) -> Any:
    return _Writer(schema, most_work).schema()
