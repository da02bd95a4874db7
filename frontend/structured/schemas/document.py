"""A schema as it was written: the location of each part, and the targets of references.

References are resolved by the standard: against the nearest `$id` (`id` in draft 4), by JSON pointers to any location,
and by anchors. Nothing outside the document is ever read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

from ....protocol.errors import RequestError

Schema = Mapping[str, Any]

# Keywords whose values are or contain schemas.
_ONE = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_LISTS = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_NAMED = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


def _shortened(location: str) -> str:
    """Shorten a location, which is kept for each schema and may contain very long names."""
    return location if len(location) <= 200 else f"{location[:100]}…{location[-100:]}"


class Refusal(RequestError):
    """The schema can't be enforced exactly, or isn't a schema."""

    def __init__(self, location: str, why: str) -> None:
        keyword = location.rpartition("/")[2]
        super().__init__(
            f"json: {keyword[:80]!r} (at {_shortened(location)}) can't be enforced exactly, and isn't ignored: {why}."
        )


class Malformed(RequestError):
    def __init__(self, location: str, what: str) -> None:
        super().__init__(f"json: at {_shortened(location)} there must be {what}.")


class _Spot(NamedTuple):
    location: str
    base: str
    draft: str

    @property
    def is_old(self) -> bool:
        """Before draft 2019-09, keywords next to `$ref` don't count."""
        return any(name in self.draft for name in _OLD_DRAFTS)

    @property
    def has_plain_id(self) -> bool:
        return any(name in self.draft for name in _OLD_DRAFTS[:2])


# A schema by its number in the document, from 1: it holds for a value; or, with a minus sign, it doesn't.
Literal = int
# A conjunction: all of them hold. None: nothing is valid.
Literals = tuple[Literal, ...] | None
ANYTHING: Literals = ()
NOTHING: Final = None


def both(left: Literals, right: Literals) -> Literals:
    if left is None or right is None:
        return NOTHING
    if not right or left == right:
        return left
    if any(-each in left for each in right):
        return NOTHING
    return left + tuple(each for each in right if each not in left)


class Document:
    def __init__(self, root: Any) -> None:
        self.root = root
        self._schemas: list[Schema] = []
        self._kept: list[Schema] = []  # keeps objects alive, so that no two share an address
        # By the address of a schema, which lives as long as this object; equal schemas have the same number.
        self._numbers: dict[int, int] = {}
        self._contents: dict[Any, int] = {}
        self._known: dict[tuple[str, str, int], int] = {}
        self._spots: dict[int, _Spot] = {}
        self._targets: dict[str, Any] = {}  # documents and anchors, by full name
        self._walk(root, _Spot("#", "", ""))
        self._targets.setdefault("", root)

    @property
    def size(self) -> int:
        """The number of schemas in it."""
        return len(self._spots)

    def literal(self, schema: Any, location: str, *, holds: bool = True) -> Literals:
        if isinstance(schema, bool):
            return ANYTHING if schema is holds else NOTHING
        if not isinstance(schema, Mapping):
            raise Malformed(location, "a schema (an object, true or false)")
        self._spots.setdefault(id(schema), _Spot(_shortened(location), "", ""))
        number = self._numbers.get(id(schema))
        if number is None:
            spot = self._spots[id(schema)]
            number = self._known.setdefault((spot.base, spot.draft, self._content(schema)), len(self._schemas))
            self._numbers[id(schema)] = number
            self._kept.append(schema)
            if number == len(self._schemas):
                self._schemas.append(schema)
        return (number + 1 if holds else -number - 1,)

    def _content(self, value: Any) -> int:
        """A number for the content: the same for equal schemas."""
        if isinstance(value, Mapping):
            key: Any = ("{", *((name, self._content(each)) for name, each in value.items()))
        elif isinstance(value, list):
            key = ("[", *map(self._content, value))
        else:
            return self._contents.setdefault((type(value), value), len(self._contents))
        return self._contents.setdefault(key, len(self._contents))

    def schema(self, literal: Literal) -> Schema:
        return self._schemas[abs(literal) - 1]

    def location(self, schema: Schema) -> str:
        return self._spots[id(schema)].location

    def is_reference_alone(self, schema: Schema) -> bool:
        return "$ref" in schema and self._spots[id(schema)].is_old

    def target(self, schema: Schema, reference: Any) -> Any:
        """The schema that a reference in `schema` points to."""
        spot = self._spots[id(schema)]
        location = f"{spot.location}/$ref"
        if not isinstance(reference, str):
            raise Malformed(location, "a reference (a string)")
        whole = _joined(spot.base, reference)
        if whole in self._targets:
            return self._targets[whole]
        document, _, fragment = whole.partition("#")
        if document not in self._targets:
            raise Refusal(location, f"{reference[:200]!r} is in another document, which is not fetched")
        found = self._pointed(self._targets[document], unquote(fragment), location, reference)
        self._targets[whole] = found
        if isinstance(found, Mapping) and id(found) not in self._spots:
            # A target in an unusual location is read as part of the document around it.
            root = self._targets[document]
            above = self._spots.get(id(root), spot)
            self._walk(found, _Spot(f"#{unquote(fragment)}", above.base, above.draft))
        return found

    def _pointed(self, root: Any, pointer: str, location: str, reference: str) -> Any:
        found = root
        for step in pointer.split("/")[1:] if pointer.startswith("/") else [None] if pointer else []:
            if step is None:
                break
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(found):
                found = found[int(key[:9])]
            else:
                raise Refusal(location, f"{reference[:200]!r} points at nothing")
        if pointer and not pointer.startswith("/"):
            raise Refusal(location, f"there is no anchor {reference[:200]!r}")
        if not isinstance(found, (Mapping, bool)):
            raise Refusal(location, f"{reference[:200]!r} points at something that is no schema")
        return found

    def _walk(self, schema: Any, spot: _Spot) -> None:
        todo = [(schema, spot)]
        while todo:
            each, spot = todo.pop()
            if not isinstance(each, Mapping) or id(each) in self._spots:
                continue
            spot = self._named(each, spot)
            self._spots[id(each)] = spot
            for step, part in _parts(each):
                todo.append((part, spot._replace(location=_shortened(f"{spot.location}/{step}"))))

    def _named(self, schema: Schema, spot: _Spot) -> _Spot:
        """Record the names that a schema gives itself; `$id` begins a new document."""
        draft = schema.get("$schema")
        if isinstance(draft, str):
            if "://" in draft and "json-schema.org/" not in draft:
                raise Refusal(f"{spot.location}/$schema", f"the keywords of {draft[:200]!r} are not known")
            spot = spot._replace(draft=draft)
        if not ("$ref" in schema and spot.is_old):
            for keyword in ("$id", "id"):
                name = schema.get(keyword)
                if not isinstance(name, str):
                    continue
                whole = _joined(spot.base, name)
                if name.startswith("#"):
                    self._targets.setdefault(whole, schema)
                    continue
                self._targets.setdefault(whole.partition("#")[0], schema)
                if keyword == "$id" or spot.has_plain_id:
                    spot = spot._replace(base=whole.partition("#")[0])
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._targets.setdefault(f"{spot.base}#{schema[keyword]}", schema)
        return spot


def _parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in _ONE:
            yield keyword, value
        if keyword in _LISTS and isinstance(value, list):
            yield from ((f"{keyword}/{number}", each) for number, each in enumerate(value))
        if keyword in _NAMED and isinstance(value, Mapping):
            yield from ((f"{keyword}/{name}", each) for name, each in value.items())


def _joined(base: str, reference: str) -> str:
    try:
        return f"{base}{reference}" if reference.startswith("#") else urljoin(base, reference)
    except ValueError:  # not a valid address
        return reference
