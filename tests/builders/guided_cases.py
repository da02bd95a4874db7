"""Shapes of every kind, each with a way to tell without the code under test whether a text has it.

Strings, numbers and lists are bounded, so that a model without sense comes to an end as well.
"""

import json
import re
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker

from penstock.protocol.parameters.sampling import SamplingParams

FORMATS = FormatChecker(())
FORMATS.checkers = dict(Draft202012Validator.FORMAT_CHECKER.checkers)


@FORMATS.checks("date", ValueError)
def is_date(value: object) -> bool:
    """RFC 3339 knows the year 0000, a leap year as 2000 is; Python doesn't."""
    if not isinstance(value, str):
        return True
    return bool(date.fromisoformat(re.sub("^0000", "2000", value)))


SHORT = {"type": "string", "maxLength": 8}


class Case(NamedTuple):
    params: dict[str, Any]
    is_valid: Callable[[str], object]


def _schema(schema: dict[str, Any]) -> Case:
    validator = Draft202012Validator(schema, format_checker=FORMATS)

    def is_valid(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text))
        except ValueError:
            return False

    return Case({"guided_json": schema}, is_valid)


def _regex(expression: str) -> Case:
    return Case({"guided_regex": expression}, re.compile(expression).fullmatch)


def _grammar(grammar: str, same: str) -> Case:
    """`same` is an expression that says what the grammar says."""
    return Case({"guided_grammar": grammar}, re.compile(same).fullmatch)


def _object(properties: dict[str, Any], required: list[str] | None = None, **rest: Any) -> dict[str, Any]:
    closed = {"type": "object", "properties": properties, "additionalProperties": False, **rest}
    return {**closed, "required": list(properties) if required is None else required}


TREE = _object(
    {
        "value": {"type": "integer", "minimum": 0, "maximum": 9},
        "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
    }
)
CIRCLE = _object({"kind": {"const": "circle"}, "radius": {"type": "integer", "minimum": 1, "maximum": 99}})
SQUARE = _object({"kind": {"const": "square"}, "side": {"type": "integer", "minimum": 1, "maximum": 99}})

SCHEMAS: dict[str, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    "null or boolean": {"type": ["null", "boolean"]},
    "integer in bounds": {"type": "integer", "minimum": -20, "maximum": 300},
    "integer outside exclusive bounds": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
    "multiple": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 500},
    "number in bounds": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01},
    "short string": SHORT,
    "string of exact length": {"type": "string", "minLength": 3, "maxLength": 3},
    "string with a pattern": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3,5}$"},
    "string with an inner pattern": {"type": "string", "pattern": "b+a", "maxLength": 12},
    "enum of strings": {"enum": ["red", "green", "blue"]},
    "enum of mixed values": {"enum": [1, "one", None, [1], {"one": 1}]},
    "enum of unicode": {"enum": ["été", "中文", "naïve ☃", "\U0001f600"]},
    "const": {"const": {"version": 2, "name": "fixed"}},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time", "pattern": "^.{0,20}$"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "uuid": {"type": "string", "format": "uuid"},
    "list": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 5},
    "list of at least two": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"enum": ["a", "b"]}],
        "items": False,
        "minItems": 2,
    },
    "nested lists": {
        "type": "array",
        "maxItems": 3,
        "items": {"type": "array", "maxItems": 3, "items": {"enum": [0, 1]}},
    },
    "object": _object({"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}}),
    "optional properties": _object({"a": SHORT, "b": {"type": "boolean"}, "c": {"enum": [1, 2]}}, ["b"]),
    "no property needed": _object({"a": {"type": "null"}, "b": {"type": "null"}}, []),
    "nested objects": _object({"outer": _object({"inner": _object({"deep": {"type": "boolean"}})})}),
    "object of lists": _object(
        {"tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 4}, "name": SHORT}
    ),
    "list of objects": {
        "type": "array",
        "maxItems": 2,
        "items": _object({"id": {"type": "integer", "minimum": 0, "maximum": 9}}),
    },
    "keys of all sorts": _object(
        {"a b": {"type": "null"}, "été": {"type": "null"}, 'q"\\': {"type": "null"}, "中": {"type": "null"}}
    ),
    "anyOf": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}, SHORT]},
    "anyOf objects": {"anyOf": [CIRCLE, SQUARE]},
    "oneOf told by a constant": {"oneOf": [CIRCLE, SQUARE]},
    "allOf": {"allOf": [{"type": "integer"}, {"minimum": 10}, {"maximum": 20}]},
    "reference": {"$defs": {"word": SHORT}, "type": "array", "items": {"$ref": "#/$defs/word"}, "maxItems": 3},
    "recursion": {"$defs": {"tree": TREE}, "$ref": "#/$defs/tree"},
    "pattern of keys": {
        "type": "object",
        "patternProperties": {"^k[0-9]$": {"type": "boolean"}},
        "additionalProperties": False,
        "maxProperties": 3,
        "required": ["k1"],
    },
    "other properties": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": {"type": "null"},
        "maxProperties": 1,
    },
    "described in detail": {
        "title": "T",
        "description": "D",
        "type": "object",
        "properties": {"x": {"type": "boolean", "default": True, "examples": [False]}},
        "required": ["x"],
        "additionalProperties": False,
    },
}

CASES: dict[str, Case] = {
    **{name: _schema(schema) for name, schema in SCHEMAS.items()},
    "regex of a mail address": _regex(r"[a-z]{2,8}@[a-z]{2,8}\.(com|org)"),
    "regex of a date": _regex(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]"),
    "regex of letters": _regex(r"[éèà中文]{1,5}( [a-z]+){0,0}"),
    "regex of lines": _regex(r"(- [a-z ]{1,12}\n){1,3}"),
    "choice": Case({"guided_choice": ["yes", "no", "maybe so"]}, ["yes", "no", "maybe so"].__contains__),
    "ebnf": _grammar(
        'root ::= "SELECT " col ("," col){0,2} " FROM " table\ncol ::= "c" [0-9]\ntable ::= "users" | "logs"\n',
        r"SELECT c\d(,c\d){0,2} FROM (users|logs)",
    ),
    "ebnf with recursion": _grammar('root ::= "(" inner ")"\ninner ::= "" | "(" ")" | [xyz]\n', r"\((|\(\)|[xyz])\)"),
    "lark": _grammar(
        'start: NAME "=" VALUE\nNAME: /[a-z]{1,6}/\nVALUE: /[0-9]{1,4}/ | "none"\n', r"[a-z]{1,6}=(\d{1,4}|none)"
    ),
    "lark with a schema": Case(
        {"guided_grammar": 'start: "answer: " value\nvalue: %json {"enum": [1, "two"]}\n'},
        ["answer: 1", 'answer: "two"'].__contains__,
    ),
}


def params(case: Case, seed: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, max_tokens=400, seed=seed, **case.params)
