"""A schema as it was written: the place of each part, and the targets of references.

References are resolved as the standard says: against the nearest `$id` (`id` in draft 4), by JSON pointers of any depth
and to any place, by anchors. Nothing outside of the document is ever read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

from ....protocol.errors import RequestError

Schema = Mapping[str, Any]

# Where schemas stand in schemas.
_ONE = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_LISTS = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_NAMED = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


def _shortened(place: str) -> str:
    """Kept for each schema, and a name in it may be as long as all the rest."""
    return place if len(place) <= 200 else f"{place[:100]}…{place[-100:]}"


class Refusal(RequestError):
    """The schema can't be held exactly, or is none."""

    def __init__(self, place: str, why: str) -> None:
        keyword = place.rpartition("/")[2]
        super().__init__(
            f"json: {keyword[:80]!r} (at {_shortened(place)}) can't be held exactly, and it is not ignored: {why}."
        )


class Malformed(RequestError):
    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"json: at {_shortened(place)} there must be {what}.")


class _Spot(NamedTuple):
    place: str
    base: str
    draft: str

    @property
    def is_old(self) -> bool:
        """Before draft 2019-09 nothing counts beside `$ref`."""
        return any(name in self.draft for name in _OLD_DRAFTS)

    @property
    def has_plain_id(self) -> bool:
        return any(name in self.draft for name in _OLD_DRAFTS[:2])


# That a schema holds of a value (its number in the document, from 1), or that it doesn't (the same below 0).
Literal = int
# All of them hold. None: nothing is valid.
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
        self._kept: list[Schema] = []  # so that no two have one address
        # By the address of a schema, which lives as long as this; schemas that say the same have one number.
        self._numbers: dict[int, int] = {}
        self._contents: dict[Any, int] = {}
        self._known: dict[tuple[str, str, int], int] = {}
        self._spots: dict[int, _Spot] = {}
        self._targets: dict[str, Any] = {}  # documents and anchors, by their whole names
        self._walk(root, _Spot("#", "", ""))
        self._targets.setdefault("", root)

    @property
    def size(self) -> int:
        """How many schemas are in it."""
        return len(self._spots)

    def literal(self, schema: Any, place: str, *, holds: bool = True) -> Literals:
        if isinstance(schema, bool):
            return ANYTHING if schema is holds else NOTHING
        if not isinstance(schema, Mapping):
            raise Malformed(place, "a schema (an object, true or false)")
        self._spots.setdefault(id(schema), _Spot(_shortened(place), "", ""))
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
        """A number for the content: equal schemas have the same."""
        if isinstance(value, Mapping):
            key: Any = ("{", *((name, self._content(each)) for name, each in value.items()))
        elif isinstance(value, list):
            key = ("[", *map(self._content, value))
        else:
            return self._contents.setdefault((type(value), value), len(self._contents))
        return self._contents.setdefault(key, len(self._contents))

    def schema(self, literal: Literal) -> Schema:
        return self._schemas[abs(literal) - 1]

    def place(self, schema: Schema) -> str:
        return self._spots[id(schema)].place

    def is_reference_alone(self, schema: Schema) -> bool:
        return "$ref" in schema and self._spots[id(schema)].is_old

    def target(self, schema: Schema, reference: Any) -> Any:
        """The schema that a reference in `schema` means."""
        spot = self._spots[id(schema)]
        place = f"{spot.place}/$ref"
        if not isinstance(reference, str):
            raise Malformed(place, "a reference (a string)")
        whole = _joined(spot.base, reference)
        if whole in self._targets:
            return self._targets[whole]
        document, _, fragment = whole.partition("#")
        if document not in self._targets:
            raise Refusal(place, f"{reference[:200]!r} is in another document, and none is fetched")
        found = self._pointed(self._targets[document], unquote(fragment), place, reference)
        self._targets[whole] = found
        if isinstance(found, Mapping) and id(found) not in self._spots:
            # In an odd place: what is in it is read as of the document that it stands in.
            root = self._targets[document]
            above = self._spots.get(id(root), spot)
            self._walk(found, _Spot(f"#{unquote(fragment)}", above.base, above.draft))
        return found

    def _pointed(self, root: Any, pointer: str, place: str, reference: str) -> Any:
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
                raise Refusal(place, f"{reference[:200]!r} points at nothing")
        if pointer and not pointer.startswith("/"):
            raise Refusal(place, f"there is no anchor {reference[:200]!r}")
        if not isinstance(found, (Mapping, bool)):
            raise Refusal(place, f"{reference[:200]!r} points at what is no schema")
        return found

    def _walk(self, schema: Any, spot: _Spot) -> None:
        todo = [(schema, spot)]
        while todo:
            each, spot = todo.pop()
            if not isinstance(each, Mapping) or id(each) in self._spots:
                continue
            spot = self._named(each, spot)
            self._spots[id(each)] = spot
            todo.extend((part, spot._replace(place=_shortened(f"{spot.place}/{step}"))) for step, part in _parts(each))

    def _named(self, schema: Schema, spot: _Spot) -> _Spot:
        """Notes the names that a schema gives itself; with `$id` begins a document of its own."""
        draft = schema.get("$schema")
        if isinstance(draft, str):
            if "://" in draft and "json-schema.org/" not in draft:
                raise Refusal(f"{spot.place}/$schema", f"which keywords hold by {draft[:200]!r} is not known")
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
    except ValueError:  # no address
        return reference
