"""What a compiled schema accepts: the public JSON-Schema-Test-Suite, and keyword by keyword for who hasn't got it."""

import pytest
from builders import json_suite
from builders.accepting import accepts, matcher

from penstock.protocol.errors import RequestError

# `format` is asserted here, where the suite's default has it describe only.
ASSERTED_HERE = "is only an annotation by default"


@pytest.mark.skipif(json_suite.folder() is None, reason=f"{json_suite.VARIABLE} names no folder")
def test_a_schema_accepts_what_is_valid_and_nothing_else_or_is_refused():
    wrong, refused, checked = [], 0, 0
    for keyword, group in json_suite.groups():
        try:
            compiled = matcher(json=group["schema"])
        except RequestError:
            compiled = None
        if compiled is None or compiled.error is not None:
            refused += 1
            continue
        for instance in group["tests"]:
            is_accepted = any(accepts(compiled, text) for text in json_suite.spellings(instance["data"]))
            checked += 1
            if is_accepted != instance["valid"] and ASSERTED_HERE not in instance["description"]:
                wrong.append(f"{keyword}: {group['description']}: {instance['description']}: {instance['data']!r}")
    assert not wrong, "\n".join(wrong)
    assert checked > 900 and refused < 125, f"{checked} instances checked, {refused} schemas refused"


KEYWORDS = {
    "type": ({"type": ["integer", "null"]}, ["1", "null", "-7"], ["1.5", '"1"', "01"]),
    "enum": ({"enum": ["a", 1, None, {"b": [1]}]}, ['"a"', "1", "null", '{"b":[1]}'], ['"b"', "2"]),
    "const": ({"const": {"a": "é"}}, ['{"a":"é"}'], ["{}", '{"a":"e"}']),
    "anyOf": ({"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 1}]}, ["true", '"x"'], ['"xy"', "1"]),
    "oneOf": ({"oneOf": [{"type": "boolean"}, {"type": "string"}]}, ["true", '"x"'], ["1"]),
    "allOf": ({"allOf": [{"minimum": 3}, {"maximum": 5}], "type": "integer"}, ["3", "5"], ["2", "6"]),
    "numbers": ({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2}, ["-1.25", "2", "0.5"], ["-1.5", "2.1"]),
    "multipleOf": ({"type": "integer", "multipleOf": 7}, ["0", "7", "-21"], ["8", "1"]),
    "length": ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é中a"'], ['"a"', '"abcd"']),
    "pattern": ({"type": "string", "pattern": "^[a-z]+-[0-9]{2}$"}, ['"ab-12"'], ['"ab-1"', '"x ab-12"']),
    "format": ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2024-13-01"', '"today"']),
    "ipv4": ({"type": "string", "format": "ipv4"}, ['"127.0.0.1"'], ['"256.0.0.1"']),
    "uuid": ({"type": "string", "format": "uuid"}, ['"2eb8aa08-aa98-11ea-b4aa-73b441d16380"'], ['"2eb8"']),
    "items": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ["[1]", "[1,2]"],
        ["[]", "[1,2,3]"],
    ),
    "prefixItems": ({"prefixItems": [{"const": 1}], "items": False, "type": "array"}, ["[1]", "[]"], ["[2]", "[1,1]"]),
    "required": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
            "required": ["b"],
            "additionalProperties": False,
        },
        ['{"a":1,"b":null}', '{"b":null}', '{ "a": 1, "b": null }', '{\n  "b": null\n}'],
        ["{}", '{"a":1}', '{"b":null,"a":1}', '{"b":null,"c":1}'],
    ),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
        ['{"x_a":1}', "{}"],
        ['{"x_a":"b"}', '{"y":1}'],
    ),
    "$ref": (
        {
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/$defs/tree"}},
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/tree",
        },
        ["{}", '{"left":{"left":{}}}'],
        ['{"left":1}', "[]"],
    ),
}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_is_held(keyword):
    schema, valid, invalid = KEYWORDS[keyword]
    compiled = matcher(json=schema)
    assert compiled.error is None
    assert [text for text in valid if not accepts(compiled, text)] == []
    assert [text for text in invalid if accepts(compiled, text)] == []


def test_white_space_is_let_in_and_has_an_end():
    compiled, compact = matcher(json={"const": [1]}), matcher(json={"const": [1]}, disable_any_whitespace=True)
    objects = matcher(json_object=True)
    assert accepts(objects, '{ "a": [\n  1 ]\n}') and accepts(objects, '{"a":1}')
    assert (
        not accepts(objects, '{  "a":1}')
        and not accepts(objects, "{\n\n}")
        and not accepts(objects, "{" + "\n" + " " * 99 + "}")
    )
    assert accepts(compiled, "[1]") and accepts(compact, "[1]") and not accepts(compact, "[ 1]")


SUMS = r"""
root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws  # digits
ws ::= [ \t\n]*
"""
STRINGS = r"""
root ::= str
str ::= "\"" ([^"\\\x00-\x1F] | "\\" ["\\/bfnrt])* "\"" | 'q' . {2,3} "\u00e9"?
"""

FORMS = {
    "regex": ({"regex": r"^\d{3}-[a-z]+$"}, ["123-ab"], ["12-ab", "123-", "123-ab "]),
    "regex with everything": ({"regex": r"(yes|no)( \p{L}+)?(\.|!)\n"}, ["yes.\n", "no été!\n"], ["yes", "no 1.\n"]),
    "choice": (
        {"choice": ["a", "b|c", "new\nline", 'q"\\', "é中", "[x]", " "]},
        ["a", "b|c", "new\nline", 'q"\\', "é中", "[x]", " "],
        ["b", "", "x", "ab"],
    ),
    "lark": ({"grammar": '?start: WORD ("," WORD)*\nWORD: /[a-z]+/\n'}, ["a", "a,bc"], ["", "a,", "A"]),
    "ebnf": (
        {"grammar": SUMS},
        ["a+b=c\n", "(a +1)/2= 3\nx=y\n"],
        ["a+=\n", "a=b"],
    ),
    "ebnf with escapes": (
        {"grammar": STRINGS},
        ['"a b"', '"\\n"', '"é"', "qxy", "qxyzé"],
        ['"\n"', '"', "qx", "q\n\n"],
    ),
    "ebnf with empty parts": ({"grammar": 'root ::= | "a" <b-c>\n<b-c> ::= "" | "x"\n'}, ["", "a", "ax"], ["x", "aa"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_accepts_what_it_says(form):
    params, valid, invalid = FORMS[form]
    compiled = matcher(**params)
    assert compiled.error is None
    assert [text for text in valid if not accepts(compiled, text)] == []
    assert [text for text in invalid if accepts(compiled, text)] == []


def test_between_structural_tags_text_is_free_and_within_them_it_is_not():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tags = [{"begin": f"<function={name}>", "schema": schema, "end": "</function>"} for name in ("weather", "time")]
    compiled = matcher(structural_tag={"structures": tags, "triggers": ["<function="]})
    call = '<function=weather>{"city": "Paris"}</function>'
    for text in ("", "no call <b>", f"Let me look.\n{call}", f"{call} and {call.replace('weather', 'time')} bye"):
        assert accepts(compiled, text), text
    for text in ("<function=other>{}</function>", "x <function=weather>{}</function>", call[:-1]):
        assert not accepts(compiled, text), text
