"""Explains a decoder's refusal in our own words: which field is wrong, where it is, and what was probably meant.

For an unknown field it names the nearest known one, for a value that isn't allowed the allowed ones, for a wrong type
the expected one. All of these are found from the struct's type and the path in the message.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from .rules import shown
from .suggestion import suggestion
from .wanted_form import KINDS, wanted

_AT = r"(?: - at `\$(?P<place>.*)`)?"
_UNKNOWN_FIELD = re.compile(rf"Object contains unknown field `(?P<name>.*?)`{_AT}", re.DOTALL)
_WRONG_VALUE = re.compile(rf"Invalid enum value (?P<quote>'?)(?P<value>.*?)(?P=quote){_AT}", re.DOTALL)


_MISSING_FIELD = re.compile(rf"Object missing required field `(?P<name>.*?)`{_AT}", re.DOTALL)
# A wrong type, a bound, a length, or a number that no type can hold.
_WRONG_FORM = re.compile(
    rf"(?:Expected `[^`]*`(?P<bound> [<>][^`]*| of length [^`]*)?(?:, got `(?P<got>[^`]*)`)?|[\w ]*out of range){_AT}",
    re.DOTALL,
)
_ANY_VALUE = "[...]"  # a value of a dict: the decoder doesn't say which

_UNKNOWN = object()
_AS_JSON = {"None": "null", "True": "true", "False": "false"}


class DecodingFault(NamedTuple):
    sentence: str
    field: str  # a path, such as "messages[0].role"; empty if it is the whole

    @classmethod
    def of(
        cls, error: msgspec.ValidationError, kind: type[msgspec.Struct], whole: str, given: Any = _UNKNOWN
    ) -> "DecodingFault":
        """`whole` is what a reader calls the struct, `given` the decoded message in plain types."""
        words = str(error)
        if found := _UNKNOWN_FIELD.fullmatch(words):
            return _no_such_field(kind, found["place"] or "", found["name"], whole)
        if found := _WRONG_VALUE.fullmatch(words):
            return _no_such_value(kind, found["place"] or "", found["value"])
        if found := _MISSING_FIELD.fullmatch(words):
            return _no_value(kind, found["place"] or "", found["name"], whole)
        if (found := _WRONG_FORM.fullmatch(words)) and (fault := _wrong_form(kind, found, whole, given)):
            return fault
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


def _no_value(kind: type[msgspec.Struct], place: str, name: str, whole: str) -> DecodingFault:
    outer = place.lstrip(".")
    form = wanted(_types_at(kind, f"{place}.{name}"))
    words = f"{outer or whole} needs {name}{f', which must be {form}' if form else ''}."
    return DecodingFault(words, ".".join(filter(None, (outer, name))))


def _wrong_form(
    kind: type[msgspec.Struct], found: "re.Match[str]", whole: str, given: Any
) -> DecodingFault | None:
    place, bound, got = found["place"] or "", found["bound"] or "", found["got"]
    form = wanted(_types_at(kind, place), is_too_large="<=" in bound)
    if not form:
        return None
    field = place.lstrip(".").removesuffix(_ANY_VALUE)
    value = _value_at(given, place)
    if field and isinstance(value, str | int | float | None):
        value_in_words = _AS_JSON.get(str(value)) if isinstance(value, bool | None) else shown(value)
        return DecodingFault(f"{field}={value_in_words}: must be {form}.", field)
    name = f"A value of {field}" if place.endswith(_ANY_VALUE) else field or whole
    return DecodingFault(f"{name} must be {form}{f', not {KINDS.get(got, got)}' if got else ''}.", field)


def _value_at(given: Any, place: str) -> Any:
    for step in _steps(place):
        try:
            given = given[int(step[1:-1]) if step.startswith("[") else step]
        except (LookupError, TypeError, ValueError):
            return _UNKNOWN
    return given


def _steps(place: str) -> list[str]:
    return place.replace(_ANY_VALUE, "[*]").replace("[", ".[").split(".")[1:]


def _types_at(kind: type[msgspec.Struct], place: str) -> list[Any]:
    types: Sequence[Any] = [_type_of(kind)]
    for step in _steps(place):
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
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    return [each for one in kind.types for each in _alternatives(one)]


@cache
def _type_of(kind: type[msgspec.Struct]) -> Any:
    return inspect.type_info(kind)
