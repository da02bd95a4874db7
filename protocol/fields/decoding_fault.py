"""Explains a decoder's refusal in our own words: which field is wrong, where it is, and the likely correction.

For an unknown field it names the nearest known one; for a bad value, the allowed ones; for a wrong type, the expected
one. All of these are found from the struct's type and the path in the message.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from .rules import MOST, shown
from .suggestion import suggestion

_AT = r"(?: - at `\$(?P<path>.*)`)?"
_UNKNOWN_FIELD = re.compile(rf"Object contains unknown field `(?P<name>.*?)`{_AT}", re.DOTALL)
_WRONG_VALUE = re.compile(rf"Invalid enum value (?P<quote>'?)(?P<value>.*?)(?P=quote){_AT}", re.DOTALL)
_MISSING_FIELD = re.compile(rf"Object missing required field `(?P<name>.*?)`{_AT}", re.DOTALL)
# A wrong type, a bound, a length, or a number that no type can hold.
_WRONG_TYPE = re.compile(
    rf"(?:Expected `[^`]*`(?P<bound> [<>][^`]*| of length [^`]*)?(?:, got `(?P<got>[^`]*)`)?|[\w ]*out of range){_AT}",
    re.DOTALL,
)
_ANY_VALUE = "[...]"  # a value of a dict: the decoder doesn't say which
_ANY_KEY = "[key]"  # likewise, which it writes in another way
_AT_A_KEY = re.compile(r"`key` in `\$(.*)`$", re.DOTALL)

_UNKNOWN = object()
_AS_JSON = {"None": "null", "True": "true", "False": "false"}
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class DecodingFault(NamedTuple):
    sentence: str
    field: str  # a path, such as "messages[0].role"; empty for the whole struct

    @classmethod
    def of(
        cls, error: msgspec.ValidationError, kind: type[msgspec.Struct], whole: str, given: Any = _UNKNOWN
    ) -> "DecodingFault":
        """Explain an error. `whole` is the reader's name for the struct, `given` the decoded message in plain types."""
        words = _AT_A_KEY.sub(rf"`$\1{_ANY_KEY}`", str(error))
        if found := _UNKNOWN_FIELD.fullmatch(words):
            return _no_such_field(kind, found["path"] or "", found["name"], whole)
        if found := _WRONG_VALUE.fullmatch(words):
            return _no_such_value(kind, found["path"] or "", found["value"])
        if found := _MISSING_FIELD.fullmatch(words):
            return _no_value(kind, found["path"] or "", found["name"], whole)
        if (found := _WRONG_TYPE.fullmatch(words)) and (fault := _wrong_type(kind, found, whole, given)):
            return fault
        sentence, _, path = words.partition(" - at `$")
        return cls(words, path.strip("`.") if sentence else "")


def _no_such_field(kind: type[msgspec.Struct], path: str, name: str, whole: str) -> DecodingFault:
    structs = [each for each in _types_at(kind, path) if isinstance(each, inspect.StructType)]
    hint = suggestion(name, {field.encode_name for struct in structs for field in struct.fields})
    outer = path.lstrip(".")
    return DecodingFault(f"{outer or whole} has no field {shown(name)}.{hint}", ".".join(filter(None, (outer, name))))


def _no_such_value(kind: type[msgspec.Struct], path: str, value: str) -> DecodingFault:
    literals = [each for each in _types_at(kind, path) if isinstance(each, inspect.LiteralType)]
    values = list(dict.fromkeys(str(value) for each in literals for value in each.values))
    field = path.lstrip(".")
    words = f"{field}={shown(value)}: must be {'one of ' if len(values) > 1 else ''}{', '.join(values)}."
    return DecodingFault(words + suggestion(value, values), field)


def _no_value(kind: type[msgspec.Struct], path: str, name: str, whole: str) -> DecodingFault:
    outer = path.lstrip(".")
    expected = _expected(_types_at(kind, f"{path}.{name}"))
    words = f"{outer or whole} needs {name}{f', which must be {expected}' if expected else ''}."
    return DecodingFault(words, ".".join(filter(None, (outer, name))))


def _wrong_type(kind: type[msgspec.Struct], found: "re.Match[str]", whole: str, given: Any) -> DecodingFault | None:
    path, bound, got = found["path"] or "", found["bound"] or "", found["got"]
    expected = _expected(_types_at(kind, path), is_too_large="<=" in bound)
    if not expected:
        return None
    field = path.lstrip(".").removesuffix(_ANY_VALUE).removesuffix(_ANY_KEY)
    value = _value_at(given, path)
    if field and isinstance(value, str | int | float | None):
        value_in_words = _AS_JSON.get(str(value)) if isinstance(value, bool | None) else shown(value)
        return DecodingFault(f"{field}={value_in_words}: must be {expected}.", field)
    part = {_ANY_VALUE: "A value of ", _ANY_KEY: "A key of "}.get(path[len(field) + 1 :], "")
    name = f"{part}{field}" or whole
    return DecodingFault(f"{name} must be {expected}{f', not {_TYPE_NAMES.get(got, got)}' if got else ''}.", field)


def _expected(types: Sequence[Any], *, is_too_large: bool = False) -> str:
    """Describe a field's alternatives; empty if one can't be described. The type None is left out, since it means
    unset."""
    words = [_word(each, is_too_large) for each in types if not isinstance(each, inspect.NoneType)]
    # Put a description with a comma last, where its parts can't be mistaken for alternatives.
    return " or ".join(sorted(dict.fromkeys(words), key=lambda word: "," in word)) if all(words) else ""


def _word(kind: Any, is_too_large: bool) -> str:
    match kind:
        case inspect.IntType():
            return f"a whole number{_bounds(kind, is_too_large)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind, is_too_large)}"
        case inspect.StrType():
            return f"text{_length(kind, ' of {} characters')}"
        case inspect.BoolType():
            return "true or false"
        case inspect.CollectionType():
            return f"a list{_length(kind, ' of {} items')}"
        case inspect.DictType():
            return f"an object{_length(kind, ' of {} entries')}"
        case inspect.StructType():
            return "an object"
        case inspect.LiteralType(values=values):
            return ("one of " if len(values) > 1 else "") + ", ".join(map(str, values))
    return ""


def _bounds(kind: Any, is_too_large: bool) -> str:
    most = None if kind.le is not None and kind.le >= MOST and not is_too_large else kind.le
    if kind.gt is not None:
        return f" above {_figure(kind.gt)}" + (f" and at most {_figure(most)}" if most is not None else "")
    if kind.ge is None:
        return f", at most {_figure(most)}" if most is not None else ""
    return f", {_figure(kind.ge)} or more" if most is None else f" from {_figure(kind.ge)} to {_figure(most)}"


def _length(kind: Any, words: str) -> str:
    if kind.max_length is None:
        return words.format(f"{kind.min_length} or more") if kind.min_length else ""
    least = f"{kind.min_length} to" if kind.min_length else "at most"
    return words.format(f"{least} {kind.max_length}")


def _figure(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _value_at(given: Any, path: str) -> Any:
    for step in _steps(path):
        try:
            given = given[int(step[1:-1]) if step.startswith("[") else step]
        except (LookupError, TypeError, ValueError):
            return _UNKNOWN
    return given


def _steps(path: str) -> list[str]:
    return path.replace(_ANY_VALUE, "[*]").replace("[", ".[").split(".")[1:]


def _types_at(kind: type[msgspec.Struct], path: str) -> list[Any]:
    types: Sequence[Any] = [_type_of(kind)]
    for step in _steps(path):
        types = [inner for each in types for inner in _inside(each, step)]
    return [each for outer in types for each in _alternatives(outer)]


def _inside(kind: Any, step: str) -> Iterator[Any]:
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == step)
        elif isinstance(each, inspect.CollectionType):
            yield each.item_type
        elif isinstance(each, inspect.DictType):
            yield each.key_type if step == _ANY_KEY else each.value_type


def _alternatives(kind: Any) -> Sequence[Any]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    return [each for one in kind.types for each in _alternatives(one)]


@cache
def _type_of(kind: type[msgspec.Struct]) -> Any:
    return inspect.type_info(kind)
