"""A compiled shape accepts what it says and nothing else: schemas, expressions, grammars, over every kind of tokenizer.

Schemas are held keyword by keyword, and at random against the `jsonschema` package.
"""

import re
from random import Random

import numpy
import pytest
from builders import schemas
from builders.cases import for_each
from builders.schemas import accepts, accepts_value, matcher
from builders.tokenizer_kinds import KINDS, write_tokenizer
from jsonschema import Draft202012Validator

from penstock.engine.grammar.matcher import Matcher, Vocabulary
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.guided import Grammar

# A shape, texts that it accepts, and texts that it refuses; the random schemas below have the other keywords.
SHAPES = {
    "numbers": ({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2}, ["-1.25", "2", "0.5"], ["-1.5", "2.1"]),
    "length": ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é中a"'], ['"a"', '"abcd"']),
    "format": ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2024-13-01"', '"today"']),
    "ipv4": ({"type": "string", "format": "ipv4"}, ['"127.0.0.1"'], ['"256.0.0.1"']),
    "uuid": ({"type": "string", "format": "uuid"}, ['"2eb8aa08-aa98-11ea-b4aa-73b441d16380"'], ['"2eb8"']),
    "items": ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, ["[1]", "[1,2]"],
              ["[]", "[1,2,3]"]),
    "prefixItems": ({"prefixItems": [{"const": 1}], "items": False, "type": "array"}, ["[1]", "[]"], ["[2]", "[1,1]"]),
    "required": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"],
         "additionalProperties": False},
        ['{"a":1,"b":null}', '{"b":null}', '{ "a": 1, "b": null }', '{\n  "b": null\n}'],
        ["{}", '{"a":1}', '{"b":null,"a":1}', '{"b":null,"c":1}'],
    ),
    "minProperties": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"const": 2}, "c": {"const": 3}},
         "required": ["a"], "additionalProperties": False, "minProperties": 2},
        ['{"a":1,"b":2}', '{"a":1,"c":3}', '{"a":1,"b":2,"c":3}'], ['{"a":1}', '{"b":2,"c":3}'],
    ),
    "patternProperties": (
        {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
        ['{"x_a":1}', "{}"], ['{"x_a":"b"}', '{"y":1}'],
    ),
    "$ref": (
        {"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}},
                            "additionalProperties": False}}, "$ref": "#/$defs/tree"},
        ["{}", '{"left":{"left":{}}}'], ['{"left":1}', "[]"],
    ),
}  # fmt: skip
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
CHOICES = ["a", "b|c", "new\nline", 'q"\\', "é中", "[x]", " "]
FORMS = {name: ({"json": schema}, valid, invalid) for name, (schema, valid, invalid) in SHAPES.items()} | {
    "regex": ({"regex": r"^\d{3}-[a-z]+$"}, ["123-ab"], ["12-ab", "123-", "123-ab "]),
    "regex with everything": ({"regex": r"(yes|no)( \p{L}+)?(\.|!)\n"}, ["yes.\n", "no été!\n"], ["yes", "no 1.\n"]),
    "choice": ({"choice": CHOICES}, CHOICES, ["b", "", "x", "ab"]),
    "lark": ({"grammar": '?start: WORD ("," WORD)*\nWORD: /[a-z]+/\n'}, ["a", "a,bc"], ["", "a,", "A"]),
    "ebnf": ({"grammar": SUMS}, ["a+b=c\n", "(a +1)/2= 3\nx=y\n"], ["a+=\n", "a=b"]),
    "ebnf with escapes": ({"grammar": STRINGS}, ['"a b"', '"\\n"', '"é"', "qxy", "qxyzé"],
                          ['"\n"', '"', "qx", "q\n\n"]),
    "ebnf with empty parts": ({"grammar": 'root ::= | "a" <b-c>\n<b-c> ::= "" | "x"\n'}, ["", "a", "ax"], ["x", "aa"]),
}  # fmt: skip


@for_each("form", FORMS)
def test_a_form_accepts_what_it_says(form):
    params, valid, invalid = FORMS[form]
    compiled = matcher(**params)
    assert compiled.error is None
    assert [text for text in valid if not accepts(compiled, text)] == []
    assert [text for text in invalid if accepts(compiled, text)] == []


def test_white_space_is_let_in_and_has_an_end():
    compiled, compact = matcher(json={"const": [1]}), matcher(json={"const": [1]}, disable_any_whitespace=True)
    objects = matcher(json_object=True)
    assert accepts(objects, '{ "a": [\n  1 ]\n}') and accepts(objects, '{"a":1}')
    for text in ('{  "a":1}', "{\n\n}", "{\n" + " " * 99 + "}"):
        assert not accepts(objects, text), text
    assert accepts(compiled, "[1]") and accepts(compact, "[1]") and not accepts(compact, "[ 1]")


def test_between_structural_tags_text_is_free_and_within_them_it_is_not():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tags = [{"begin": f"<function={name}>", "schema": schema, "end": "</function>"} for name in ("weather", "time")]
    compiled = matcher(structural_tag={"structures": tags, "triggers": ["<function="]})
    call = '<function=weather>{"city": "Paris"}</function>'
    for text in ("", "no call <b>", f"Let me look.\n{call}", f"{call} and {call.replace('weather', 'time')} bye"):
        assert accepts(compiled, text), text
    for text in ("<function=other>{}</function>", "x <function=weather>{}</function>", call[:-1]):
        assert not accepts(compiled, text), text


# --- random schemas --------------------------------------------------------------------------------------------------

# Each keyword meets those that narrow the same values.
OF_OBJECTS = ("properties", "required", "type", "closed", "patternProperties")
KEYWORDS = {
    "oneOf": ("oneOf", "const", "enum", *OF_OBJECTS),
    "not": ("not", "bounds", "length", "pattern", "enum", "items", *OF_OBJECTS),
    "if": ("if", "const", "enum", *OF_OBJECTS),
    "dependentRequired": ("dependentRequired", "not", *OF_OBJECTS),
    "dependentSchemas": ("dependentSchemas", "not", *OF_OBJECTS),
    "contains": ("contains", "prefixItems", "items", "not", "type", "const"),
    "uniqueItems": ("uniqueItems", "prefixItems", "anyOf", "type"),
    "sizes": ("sizes", "not", "propertyNames", *OF_OBJECTS),
    "multipleOf": ("multipleOf", "enum", "not", "bounds", "type"),
    "all": schemas.KEYWORDS,
}


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(1000, 2500), marks=pytest.mark.long)], ids=len)
@for_each("keyword", KEYWORDS)
def test_a_rewritten_schema_accepts_the_values_that_the_schema_accepts(keyword, seeds):
    assert compared(keyword, seeds) >= 1.2 * len(seeds)


def compared(keyword: str, seeds: range) -> int:
    decided = 0
    for seed in seeds:
        chance = Random(f"{keyword} {seed}")
        schema = schemas.part(chance, keyword if keyword != "all" else "oneOf", KEYWORDS[keyword])
        try:
            compiled = matcher(json=schema)
        except RequestError:
            continue
        error = compiled.error
        if error is not None and "nsatisfiable" not in error:
            continue
        judge = Draft202012Validator(schema)
        for value in [schemas.value(chance) for _ in range(8)]:
            is_accepted = False if error is not None else accepts_value(compiled, value)
            if is_accepted is not None:
                decided += 1
                assert is_accepted is judge.is_valid(value), f"{schema} and {value!r}"
    return decided


# --- tokenizers ------------------------------------------------------------------------------------------------------

EXPRESSION = "[a-z]{2,5} [a-z]{1,6}é? x"


def walked(matcher: Matcher, seed: int) -> list[int]:
    """Tokens taken at random from what is allowed, up to where nothing but an ending is."""
    chance, tokens = Random(seed), []
    while not matcher.is_complete:
        bits = numpy.unpackbits(numpy.frombuffer(matcher.mask([]), numpy.uint8), bitorder="little")
        following = matcher.certain() or [chance.choice(numpy.flatnonzero(bits).tolist())]
        assert matcher.take(following)
        tokens += following
    return tokens


@for_each("kind", [kind for kind in KINDS if kind != "word_piece"])
def test_whatever_is_allowed_spells_what_the_grammar_says(kind, tmp_path):
    write_tokenizer(tmp_path, kind)
    tokenizer = Tokenizer(tmp_path)
    # A model may have more rows than its tokenizer has tokens, or fewer.
    for size in (len(tokenizer) + 7, len(tokenizer) - 1):
        matcher = Matcher.compiled(Grammar("regex", EXPRESSION), Vocabulary(tmp_path, size))
        assert len(matcher.mask([])) == -(-size // 32) * 4
        for seed in range(8):
            assert re.fullmatch(EXPRESSION, tokenizer.decode(walked(matcher.fork(), seed)))


def test_what_ends_an_answer_is_the_requests_to_say(tmp_path):
    write_tokenizer(tmp_path, "byte_level")
    matcher = Matcher.compiled(Grammar("regex", "a*"), Vocabulary(tmp_path, 420))
    with_endings, without = matcher.mask([7, 300]), matcher.mask([])
    changed = [token for token in range(420) if (with_endings[token >> 3] ^ without[token >> 3]) >> (token & 7) & 1]
    assert changed == [7, 300]
