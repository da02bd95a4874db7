"""What is wrong with a field that a decoder refused, in our own words: which it is, where, and which was meant.

Of a field that isn't there the nearest that is, of a value that isn't allowed those that are; both are found from the
struct's type and the place in the message. Knows no struct.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from .rules import shown
from .suggestion import suggestion

_AT = r"(?: - at `\$(?P<place>.*)`)?"
_UNKNOWN_FIELD = re.compile(rf"Object contains unknown field `(?P<name>.*?)`{_AT}", re.DOTALL)
_WRONG_VALUE = re.compile(rf"Invalid enum value (?P<quote>'?)(?P<value>.*?)(?P=quote){_AT}", re.DOTALL)


class DecodingFault(NamedTuple):
    sentence: str
    field: str  # as a path, such as "messages[0].role"; empty where it is the whole

    @classmethod
    def of(cls, error: msgspec.ValidationError, kind: type[msgspec.Struct], whole: str) -> "DecodingFault":
        """`whole` is what a reader calls the struct."""
        words = str(error)
        if found := _UNKNOWN_FIELD.fullmatch(words):
            return _no_such_field(kind, found["place"] or "", found["name"], whole)
        if found := _WRONG_VALUE.fullmatch(words):
            return _no_such_value(kind, found["place"] or "", found["value"])
        sentence, _, place = words.partition(" - at `$")
        return cls(words, place.strip("`.") if sentence else "")


def _no_such_field(kind: type[msgspec.Struct], place: str, name: str, whole: str) -> DecodingFault:
    structs = [each for each in _types_at(kind, place) if isinstance(each, inspect.StructType)]
    hint = suggestion(name, {field.encode_name for struct in structs for field in struct.fields})
    outer = place.lstrip(".")
    return DecodingFault(f"{outer or whole} has no field {shown(name)}.{hint}", ".".join(filter(None, (outer, name))))


def _no_such_value(kind: type[msgspec.Struct], place: str, value: str) -> DecodingFault:
    literals = [each for each in _types_at(kind, place) if isinstance(each, inspect.LiteralType)]
    values = list(dict.fromkeys(str(value) for each in literals for value in each.values))
    field = place.lstrip(".")
    words = f"{field}={shown(value)}: must be {'one of ' if len(values) > 1 else ''}{', '.join(values)}."
    return DecodingFault(words + suggestion(value, values), field)


def _types_at(kind: type[msgspec.Struct], place: str) -> list[Any]:
    types: Sequence[Any] = [_type_of(kind)]
    for step in place.replace("[", ".[").split(".")[1:]:
        types = [inner for each in types for inner in _inside(each, step)]
    return [each for outer in types for each in _alternatives(outer)]


def _inside(kind: Any, step: str) -> Iterator[Any]:
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == step)
        elif isinstance(each, inspect.CollectionType):
            yield each.item_type
        elif isinstance(each, inspect.DictType):
            yield each.value_type


def _alternatives(kind: Any) -> Sequence[Any]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind.types if isinstance(kind, inspect.UnionType) else [kind]


@cache
def _type_of(kind: type[msgspec.Struct]) -> Any:
    return inspect.type_info(kind)
