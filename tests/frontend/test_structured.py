"""Schemas, grammars and tags of guided answers become grammars for the engine, or are refused with the reason.

Even the longest that are let in take a time in proportion to their length, whatever stands in them.
"""

import json
import signal
from functools import reduce

import pytest
from builders.cases import for_each

from penstock.frontend.structured import grammar_of
from penstock.frontend.structured.ebnf import as_lark
from penstock.frontend.structured.schemas import plain_schema
from penstock.frontend.structured.shape import MOST_BYTES, MOST_REGEX_BYTES
from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.guided import GuidedDecodingParams


def tag_of(structure: dict) -> dict:
    return {"structural_tag": {"structures": [structure], "triggers": ["<"]}}


def test_what_describes_or_asserts_nothing_is_left_out_and_older_drafts_are_read_as_they_were_meant():
    schema = {
        "title": "t", "description": "d", "default": 1, "examples": [2], "deprecated": True, "$comment": "c",
        "x-guidance": {"lenient": True}, "unheard-of": {"not": {}}, "format": "idn-email", "type": "object",
        "properties": {"title": {"type": "string", "description": "d", "format": "uuid"}}, "required": ["title"],
    }  # fmt: skip
    properties = {"title": {"type": "string", "format": "uuid"}}
    assert plain_schema(schema) == {"type": "object", "properties": properties, "required": ["title"]}
    for schema in (
        {"uniqueItems": False}, {"if": {"const": 1}}, {"then": {"const": 1}}, {"minContains": 2}, {"propertyNames": {}},
        {"unevaluatedItems": True}, {"not": False}, {"not": {"not": {}}}, {"dependentRequired": {}},
    ):  # fmt: skip
        assert plain_schema(schema) == {"allOf": [True]}, schema
    older = {"type": "array", "items": [{"type": "string"}], "additionalItems": False}
    assert plain_schema(older) == {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "maxItems": 1}
    assert "prefixItems" not in plain_schema({"items": {}, "additionalItems": False})


@for_each("schema, word", [
    ({"type": "number", "not": {"multipleOf": 2}}, "#/not/multipleOf"),
    ({"properties": {"a": {"type": "string", "not": {"format": "date"}}}}, "#/properties/a/not/format"),
    ({"allOf": [{"uniqueItems": True}]}, "#/allOf/0/uniqueItems"),
    ({"items": {"contains": {"type": "string"}}}, "#/items/contains"),
    ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}]}, "unevaluatedProperties"),
    ({"unevaluatedItems": False}, "unevaluatedItems"),
    ({"propertyNames": {"format": "uuid"}}, "propertyNames"),
    ({"oneOf": [{"items": {"type": "integer"}}, {"items": {"type": "number"}}]}, "#/oneOf/0/items"),
    ({"$ref": "other.json"}, "another document"), ({"$ref": "#/$defs/none"}, "points at nothing"),
    ({"$ref": "#"}, "lead from one to the next"), ({"type": "any"}, "name of a type"),
    (
        {"type": "object", "allOf": [{"anyOf": [{"required": [f"{x}{n}"]} for x in "ab"]} for n in range(20)]},
        "512 cases",
    ),
    ({"$dynamicRef": "#x"}, "$dynamicRef"), ({"maxItems": 1.5}, "whole number"),
    ({"properties": []}, "object of schemas"), ({"anyOf": {}}, "list of schemas"),
    ({"items": "string"}, "must be a schema"),
    (reduce(lambda inner, _: {"items": inner}, range(70), {}), "64 levels"),
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"), ('"' + "x" * (1 << 20) + '"', "524,288"),
])  # fmt: skip
def test_what_asserts_and_cannot_be_held_is_refused(schema, word):
    with pytest.raises(RequestError, match="json") as refused:
        grammar_of(GuidedDecodingParams(json=schema))
    assert word in str(refused.value)


@for_each("is_compact, option", [(False, "whitespace_pattern"), (True, "whitespace_flexible")])
def test_white_space_has_an_end_in_every_schema(is_compact, option):
    for params in ({"json": {}}, {"json_object": True}, tag_of({"begin": "<f>", "schema": {}, "end": ""})):
        assert option in grammar_of(GuidedDecodingParams(**params, disable_any_whitespace=is_compact)).text


@for_each("params, word", [
    ({"choice": []}, "empty"), ({"choice": ["\ud800"]}, "Unicode"), ({"json": {"const": "\udc00"}}, "Unicode"),
    ({"grammar": 'root ::= "' + "a" * (600 << 10) + '"'}, "524,288"),
    ({"structural_tag": {"structures": [], "triggers": []}}, "at least one"),
    (tag_of({"begin": "<f>"}), "'end'"),
    (tag_of({"begin": "f", "schema": {}, "end": ""}), "begins with"),
    ({"structural_tag": {"format": {"type": "sequence"}}}, "triggered_tags"),
    (tag_of({"begin": "<", "schema": {"contains": {"const": 1}}, "end": ""}), "contains"),
    ({"grammar": 'root ::= "a'}, "line 1"), ({"grammar": 'root ::= "a"\nother = "b"'}, "line 2"),
    ({"grammar": "root ::= nobody"}, "no rule nobody"), ({"grammar": 'other ::= "a"'}, "rule named root"),
    ({"grammar": 'root ::= ("a"'}, "parenthesis"), ({"grammar": 'root ::= "a")'}, "parentheses"),
    ({"grammar": "root ::= " + "(" * 100 + '"a"' + ")" * 100}, "64"),
    ({"grammar": "root ::= []"}, "characters"), ({"grammar": r'root ::= "\uD800"'}, "no text"),
    ({"grammar": '"a" ::= "b"'}, "line 1"),
])  # fmt: skip
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


def test_ebnf_is_written_in_lark_and_lark_loses_its_marks_for_trees_alone():
    assert as_lark('root ::= "yes" | Num-ber ("," Num-ber)*\nNum-ber ::= [0-9]+ # digits\n') == (
        'start: "yes" | r__4e_um_2d_ber ( "," r__4e_um_2d_ber ) *\nr__4e_um_2d_ber: /[0-9]/ +\n'
    )
    marked = '?start: "a" | b\n!b.2: "x" # ?start:\nC: /::= ?b:/\n'
    assert as_lark(marked) == 'start: "a" | b\nb.2: "x" # ?start:\nC: /::= ?b:/\n'


# A tenth of it is enough; with the square of the length it is minutes.
CPU_SECONDS = 10


def read(**form):
    """The refusal, or None; what runs on beyond the processor time is interrupted."""

    def interrupt(number, frame):
        pytest.fail(f"it takes more than {CPU_SECONDS} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        grammar_of(GuidedDecodingParams(**form))
    except RequestError as refusal:
        return str(refusal)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return None


def filled(head, unit, tail=""):
    """Of the length that is let in."""
    return head + unit * ((MOST_BYTES - len(head) - len(tail)) // len(unit.encode())) + tail


@for_each("head, unit, tail, word", [
    ("root ::= ", "(*", "", "comment"), ('root ::= "a" (* ', "(*", "", "comment"),
    ('root ::= "a"{', " ", "", "EBNF has nothing that begins with"),
    ('root ::= "a"{', "1", "", "EBNF has nothing that begins with"),
    ("root ::= ", "(", "", "levels"),
    ('root ::= "', "\\a", "", "EBNF has nothing that begins with"),
    ("root ::= [", "a", "", "EBNF has nothing that begins with"),
    ('root ::= "a" ', "(**)", "", "None"),  # comments that are closed are passed over
    ('root ::= "a" (*', "(*", "*)", "None"),
])  # fmt: skip
def test_ebnf_that_opens_without_end_is_refused(head, unit, tail, word):
    assert word in str(read(grammar=filled(head, unit, tail)))


def tags(begins, triggers):
    structures = [{"begin": begin, "end": ""} for begin in begins]
    return json.dumps({"structures": structures, "triggers": triggers}, separators=(",", ":"))


@for_each("text", [
    tags(["z"] * 9_000, ["a"] * 60_000 + ["z"]),
    tags(["z"] * 9_000, [f"{number:x}" for number in range(30_000)] + ["z"]),
    tags(["a" * 700 + "b"] * 350, ["a" * length for length in range(700, 0, -1)]),
    tags(["a" * 250_000], ["a" * length for length in range(700, 0, -1)]),
    tags(["a"] * 19_000, ["a"]),
], ids=["one trigger again and again", "many triggers", "many lengths", "a long tag", "many tags"])  # fmt: skip
def test_structural_tags_are_read_or_refused(text):
    assert 380_000 < len(text) <= MOST_BYTES
    read(structural_tag=text)


def test_schemas_that_never_end_are_refused_and_long_names_are_not_written_again_for_each_that_is_in_them():
    for unit in ('{"items":', '{"a":{},"items":', "[", '{"anyOf":['):
        for tail in ("", "0"):
            assert "json" in read(json=filled("", unit, tail))
    # The text of a place would be a megabyte long, for each of 8,000 keywords.
    inner = {f"{number:x}": {"a": 0, "b": 0} for number in range(8_000)}
    schema = {"properties": {"n\U0001f600" * 30_000: {"properties": inner}}}
    assert read(json=json.dumps(schema, ensure_ascii=False, separators=(",", ":"))) is None


def test_choices_and_expressions_beyond_the_limit_are_refused():
    assert "524,288" in read(choice=["."] * 1_000_000)
    assert "16,384" in read(regex="." * MOST_BYTES)
    assert read(regex="(" * MOST_REGEX_BYTES) is None  # the engine's compiler says what is wrong with it


def test_a_refusal_is_short_whatever_it_quotes():
    for form in (
        {"json": {"x" * 500_000: 0, "properties": {"x" * 400_000: 5}}},
        {"structural_tag": tags(["a" * 400_000], ["b"])}, {"structural_tag": {"format": {"type": "a" * 400_000}}},
        {"grammar": "root ::= " + "a" * 400_000}, {"grammar": 'root ::= "' + "a" * 400_000 + '\\uD800"'},
    ):  # fmt: skip
        assert len(read(**form)) < 1_100
