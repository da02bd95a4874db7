"""Shapes on their way to the engine: what is let in, what is refused with which words, and what Lark is written."""

import json

import pytest

from penstock.frontend.structured import grammar_of
from penstock.frontend.structured.ebnf import as_lark
from penstock.frontend.structured.schemas import plain_schema
from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.guided import GuidedDecodingParams


def nested(levels: int) -> dict:
    schema: dict = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_what_only_describes_is_left_out():
    schema = {
        "title": "t", "description": "d", "default": 1, "examples": [2], "deprecated": True, "$comment": "c",
        "x-guidance": {"lenient": True}, "unheard-of": {"not": {}}, "format": "idn-email", "type": "object",
        "properties": {"title": {"type": "string", "description": "d", "format": "uuid"}}, "required": ["title"],
    }  # fmt: skip
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {"title": {"type": "string", "format": "uuid"}},
        "required": ["title"],
    }


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "number", "not": {"multipleOf": 2}}, "#/not/multipleOf"),
        ({"properties": {"a": {"type": "string", "not": {"format": "date"}}}}, "#/properties/a/not/format"),
        ({"allOf": [{"uniqueItems": True}]}, "#/allOf/0/uniqueItems"),
        ({"items": {"contains": {"type": "string"}}}, "#/items/contains"),
        ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}]}, "unevaluatedProperties"),
        ({"unevaluatedItems": False}, "unevaluatedItems"),
        ({"propertyNames": {"format": "uuid"}}, "propertyNames"),
        ({"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "number"}}]}, "#/oneOf/0/items"),
        ({"$ref": "other.json"}, "another document"),
        ({"$ref": "#/$defs/none"}, "points at nothing"),
        ({"$ref": "#"}, "lead from one to the next"),
        ({"type": "any"}, "name of a type"),
        (
            {"type": "object", "allOf": [{"anyOf": [{"required": [x + str(n)]} for x in "ab"]} for n in range(20)]},
            "512 cases",
        ),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"maxItems": 1.5}, "whole number"),
        ({"properties": []}, "object of schemas"),
        ({"anyOf": {}}, "list of schemas"),
        ({"items": "string"}, "must be a schema"),
        (nested(70), "64 levels"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('"' + "x" * (1 << 20) + '"', "524,288"),
    ],
)
def test_what_asserts_and_cannot_be_held_is_refused(schema, word):
    with pytest.raises(RequestError, match="json") as refused:
        grammar_of(GuidedDecodingParams(json=schema))
    assert word in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"uniqueItems": False},
        {"if": {"const": 1}},
        {"then": {"const": 1}},
        {"minContains": 2},
        {"unevaluatedItems": True},
        {"propertyNames": {}},
        {"not": False},
        {"not": {"not": {}}},
        {"dependentRequired": {}},
    ],
)
def test_what_asserts_nothing_is_not_refused(schema):
    assert plain_schema(schema) == {"allOf": [True]}


def test_an_older_drafts_arrays_are_read_as_they_were_meant():
    older = {"type": "array", "items": [{"type": "string"}], "additionalItems": False}
    assert plain_schema(older) == {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "maxItems": 1}
    assert "prefixItems" not in plain_schema({"items": {}, "additionalItems": False})


@pytest.mark.parametrize(("is_compact", "option"), [(False, "whitespace_pattern"), (True, "whitespace_flexible")])
def test_white_space_has_an_end_in_every_schema(is_compact, option):
    tag = {"structures": [{"begin": "<f>", "schema": {}, "end": ""}], "triggers": ["<"]}
    for params in ({"json": {}}, {"json_object": True}, {"structural_tag": tag}):
        assert option in grammar_of(GuidedDecodingParams(**params, disable_any_whitespace=is_compact)).text


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"choice": []}, "empty"),
        ({"choice": ["\ud800"]}, "Unicode"),
        ({"json": {"const": "\udc00"}}, "Unicode"),
        ({"regex": "a" * (17 << 10)}, "16,384"),
        ({"grammar": 'root ::= "' + "a" * (600 << 10) + '"'}, "524,288"),
        ({"structural_tag": {"structures": [], "triggers": []}}, "at least one"),
        ({"structural_tag": {"structures": [{"begin": "<f>"}], "triggers": ["<"]}}, "'end'"),
        (
            {"structural_tag": {"structures": [{"begin": "f", "schema": {}, "end": ""}], "triggers": ["<"]}},
            "begins with",
        ),
        ({"structural_tag": {"format": {"type": "sequence"}}}, "triggered_tags"),
        (
            {
                "structural_tag": {
                    "structures": [{"begin": "<", "schema": {"contains": {"const": 1}}, "end": ""}],
                    "triggers": ["<"],
                }
            },
            "contains",
        ),
    ],
)
def test_what_is_wrong_with_another_form_is_said(params, word):
    with pytest.raises(RequestError) as refused:
        grammar_of(GuidedDecodingParams(**params))
    assert word in str(refused.value)


def test_both_ways_to_write_a_structural_tag_mean_the_same():
    schema = {"type": "object"}
    older = {"structures": [{"begin": "<f=a>", "schema": schema, "end": "</f>"}], "triggers": ["<f="]}
    tag = {"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</f>"}
    newer = {"type": "structural_tag", "format": {"type": "triggered_tags", "tags": [tag], "triggers": ["<f="]}}
    written = [grammar_of(GuidedDecodingParams(structural_tag=each)).text for each in (older, json.dumps(newer))]
    assert written[0] == written[1]


def test_ebnf_is_written_in_lark():
    assert as_lark('root ::= "yes" | Num-ber ("," Num-ber)*\nNum-ber ::= [0-9]+ # digits\n') == (
        'start: "yes" | r__4e_um_2d_ber ( "," r__4e_um_2d_ber ) *\nr__4e_um_2d_ber: /[0-9]/ +\n'
    )


def test_larks_marks_for_trees_are_dropped_and_the_rest_is_left_alone():
    assert (
        as_lark('?start: "a" | b\n!b.2: "x" # ?start:\nC: /::= ?b:/\n')
        == 'start: "a" | b\nb.2: "x" # ?start:\nC: /::= ?b:/\n'
    )


@pytest.mark.parametrize(
    ("grammar", "word"),
    [
        ('root ::= "a', "line 1"),
        ('root ::= "a"\nother = "b"', "line 2"),
        ("root ::= nobody", "no rule nobody"),
        ('other ::= "a"', "rule named root"),
        ('root ::= ("a"', "parenthesis"),
        ('root ::= "a")', "parentheses"),
        ("root ::= " + "(" * 100 + '"a"' + ")" * 100, "64"),
        ("root ::= []", "characters"),
        (r'root ::= "\uD800"', "no text"),
        ('"a" ::= "b"', "line 1"),
    ],
)
def test_ebnf_that_cannot_be_read_is_refused_with_its_line(grammar, word):
    with pytest.raises(RequestError) as refused:
        as_lark(grammar)
    assert word in str(refused.value)
