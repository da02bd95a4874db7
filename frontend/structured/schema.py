"""JSON schemas as the engine's compiler takes them: what only describes is left out, what can't be held is refused.

The keywords of draft 2020-12 (and what older drafts write for the same) stand in tables: those whose values are schemas
again, those that are kept as they are, and those that assert something that can't be held. All others describe, or are
unknown, and say nothing of what is valid. Knows nothing of grammars.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.errors import RequestError

_KEPT = {
    "$anchor", "$id", "$ref", "$schema", "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "id", "maximum",
    "minimum", "multipleOf", "pattern", "required", "type",
}  # fmt: skip
_COUNTS = {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
_SCHEMA = {"additionalProperties", "items"}
_SCHEMAS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_NAMED_SCHEMAS = {"$defs", "definitions", "patternProperties", "properties"}
# Formats that are held. Any other says nothing, as the standard has it for all of them.
FORMATS = {
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
}  # fmt: skip

# Of a schema: the keywords, names and numbers that lead to it. Its text is written for a refusal alone: a name may be
# as long as all the rest.
_Place = tuple[str | int, ...]
# Of a value, and the schema around it: it asserts nothing.
_Harmless = Callable[[Any, Mapping[str, Any]], bool]


def _is_true(value: Any, schema: Mapping[str, Any]) -> bool:
    return value is True or value == {}


# Keywords that assert what no grammar here can hold.
REFUSED: dict[str, _Harmless] = {
    "$dynamicRef": lambda value, schema: False,
    "$recursiveRef": lambda value, schema: False,
    "contains": lambda value, schema: False,
    "dependencies": lambda value, schema: not value,
    "dependentRequired": lambda value, schema: not value,
    "dependentSchemas": lambda value, schema: not value,
    "if": lambda value, schema: "then" not in schema and "else" not in schema,
    "not": lambda value, schema: value is False,
    "propertyNames": _is_true,
    "unevaluatedItems": _is_true,
    "unevaluatedProperties": _is_true,
    "uniqueItems": lambda value, schema: value is False,
}


def checked_schema(schema: Any) -> dict[str, Any]:
    """The schema with nothing but what is held; raises `RequestError` where something can't be."""
    checked = _checked(schema, ("#",))
    if isinstance(checked, bool):
        return {"allOf": [checked]}
    return checked


def _checked(schema: Any, place: _Place) -> Any:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise _wrong(place, "a schema (an object, true or false)")
    checked: dict[str, Any] = {}
    for keyword, value in _in_one_draft(schema).items():
        here = (*place, keyword)
        if keyword in _KEPT:
            checked[keyword] = value
        elif keyword in _COUNTS:
            checked[keyword] = _count(value, here)
        elif keyword in _SCHEMA:
            checked[keyword] = _checked(value, here)
        elif keyword in _SCHEMAS:
            checked[keyword] = _each_checked(value, here)
        elif keyword in _NAMED_SCHEMAS:
            checked[keyword] = _each_named_checked(value, here)
        elif keyword == "format":
            checked |= {"format": value} if isinstance(value, str) and value in FORMATS else {}
        elif keyword in REFUSED and not REFUSED[keyword](value, schema):
            raise RequestError(
                f"json: {keyword!r} (at {_path(here)}) is not supported, and it is not ignored; leave it out."
            )
    return checked


def _in_one_draft(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as draft 2020-12 writes them: before it, `items` could be the list that is now `prefixItems`."""
    if not isinstance(schema.get("items"), list):
        return {keyword: value for keyword, value in schema.items() if keyword != "additionalItems"}
    rest = {keyword: value for keyword, value in schema.items() if keyword not in ("items", "additionalItems")}
    return {**rest, "prefixItems": schema["items"], "items": schema.get("additionalItems", True)}


def _count(value: Any, place: _Place) -> int:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value != int(value) or value < 0:
        raise _wrong(place, "a whole number, 0 or more")
    return int(value)


def _each_checked(value: Any, place: _Place) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(place, "a list of schemas")
    return [_checked(each, (*place, index)) for index, each in enumerate(value)]


def _each_named_checked(value: Any, place: _Place) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(place, "an object of schemas")
    return {name: _checked(each, (*place, name)) for name, each in value.items()}


def _wrong(place: _Place, needed: str) -> RequestError:
    return RequestError(f"json: at {_path(place)} there must be {needed}.")


def _path(place: _Place) -> str:
    return "/".join(map(str, place))
