"""JSON schemas at random, with values that are often valid against them, and what they accept once they are compiled.

A compiled grammar is asked byte by byte whether it accepts a text: no tokenizer, and so no tokenizer's gaps. Names,
constants and sizes are few, so that keywords meet: a constant that another branch excludes, a property that is required
here and forbidden there.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from penstock.engine.grammar.matcher import Matcher, Vocabulary
from penstock.frontend.structured import grammar_of
from penstock.protocol.parameters.guided import GuidedDecodingParams

NAMES = ("a", "b", "c", "ab")
CONSTANTS = (None, True, False, 0, 1, 2, 2.5, "", "a", "b", "ab", [], [1], {}, {"a": 1})
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
PATTERNS = ("a", "^a", "b$", "^(a|b)$", "^[^a]", "^a?b", "^(?!b)a")


def schema(random: Random, keywords: tuple[str, ...], levels: int = 2) -> Any:
    if levels == 0 or random.random() < 0.08:
        return random.choice([True, {"type": random.choice(TYPES)}, {"const": random.choice(CONSTANTS)}, False])
    made: dict[str, Any] = {}
    for keyword in random.sample(keywords, random.randint(1, 3)):
        made |= _KEYWORDS[keyword](random, keywords, levels - 1)
    return made


def part(random: Random, keyword: str, keywords: tuple[str, ...]) -> dict[str, Any]:
    """With this keyword, and some of the others beside and below it."""
    beside = random.choice(keywords)
    return _KEYWORDS[beside](random, keywords, 1) | _KEYWORDS[keyword](random, keywords, random.choice([1, 1, 2]))


def value(random: Random, levels: int = 2) -> Any:
    kind = random.random()
    if levels == 0 or kind < 0.4:
        return random.choice([*CONSTANTS[:11], 3, -1, 0.5, "ba", "aab", "c"])
    if kind < 0.65:
        return [value(random, levels - 1) for _ in range(random.randint(0, 3))]
    return {
        name: value(random, levels - 1) for name in random.sample((*NAMES, "z"), random.choice([0, 1, 1, 2, 2, 3, 4]))
    }


def _list(random: Random, keywords: tuple[str, ...], levels: int) -> list[Any]:
    return [schema(random, keywords, levels) for _ in range(random.randint(1, 3))]


def _named(random: Random, keywords: tuple[str, ...], levels: int) -> dict[str, Any]:
    return {name: schema(random, keywords, levels) for name in random.sample(NAMES, random.randint(1, 3))}


def _names(random: Random) -> list[str]:
    return random.sample(NAMES, random.randint(1, 2))


_KEYWORDS = {
    "type": lambda r, k, n: {"type": r.choice([r.choice(TYPES), r.sample(TYPES, 2)])},
    "const": lambda r, k, n: {"const": r.choice(CONSTANTS)},
    "enum": lambda r, k, n: {"enum": r.sample(CONSTANTS, r.randint(1, 4))},
    "bounds": lambda r, k, n: {
        r.choice(["minimum", "exclusiveMinimum"]): r.choice([0, 1, 1.5]),
        "maximum": r.choice([1, 2]),
    },
    "multipleOf": lambda r, k, n: {"multipleOf": r.choice([1, 2, 0.5])},
    "length": lambda r, k, n: {r.choice(["minLength", "maxLength"]): r.randint(0, 2)},
    "pattern": lambda r, k, n: {"pattern": r.choice(PATTERNS)},
    "properties": lambda r, k, n: {"properties": _named(r, k, n)},
    "closed": lambda r, k, n: {
        "properties": _named(r, k, n),
        "additionalProperties": r.choice([False, False, {"type": "integer"}]),
    },
    "patternProperties": lambda r, k, n: {"patternProperties": {r.choice(PATTERNS): schema(r, k, n)}},
    "propertyNames": lambda r, k, n: {
        "propertyNames": r.choice([{"enum": ["a", "b"]}, {"pattern": r.choice(PATTERNS)}, {"maxLength": 1}])
    },
    "required": lambda r, k, n: {"required": _names(r)},
    "sizes": lambda r, k, n: {r.choice(["minProperties", "maxProperties"]): r.randint(0, 3)},
    "items": lambda r, k, n: {"items": schema(r, k, n), "maxItems": r.randint(0, 3)},
    "prefixItems": lambda r, k, n: {"prefixItems": _list(r, k, n), r.choice(["minItems", "maxItems"]): r.randint(0, 2)},
    "contains": lambda r, k, n: (
        {"contains": schema(r, k, n), "maxItems": 3}
        | r.choice([{}, {"minContains": r.randint(0, 2)}, {"maxContains": 1}])
    ),
    "uniqueItems": lambda r, k, n: {"uniqueItems": True, "items": {"enum": r.sample(CONSTANTS[:10], 3)}},
    "allOf": lambda r, k, n: {"allOf": _list(r, k, n)},
    "anyOf": lambda r, k, n: {"anyOf": _list(r, k, n)},
    "oneOf": lambda r, k, n: {"oneOf": _list(r, k, n)},
    "not": lambda r, k, n: {"not": schema(r, k, n)},
    "if": lambda r, k, n: {"if": schema(r, k, n), r.choice(["then", "else"]): schema(r, k, n)},
    "dependentRequired": lambda r, k, n: {"dependentRequired": {r.choice(NAMES): _names(r)}},
    "dependentSchemas": lambda r, k, n: {"dependentSchemas": {r.choice(NAMES): schema(r, k, n)}},
}
KEYWORDS = tuple(_KEYWORDS)


# --- accepting -------------------------------------------------------------------------------------------------------

END = 256
_MOST_PIECES = 600  # of JSON, over all orders that are tried


@cache
def byte_vocabulary() -> Vocabulary:
    alphabet = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    with TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        return Vocabulary(Path(folder), END + 1)


def ids(text: str) -> list[int]:
    return byte_vocabulary().tokens.tokenize_bytes(text.encode("utf-8", "surrogatepass"))


def matcher(**form) -> Matcher:
    """Compiled in this process: only for grammars that mean well."""
    return Matcher.compiled(grammar_of(GuidedDecodingParams(**form)), byte_vocabulary())


def accepts(compiled: Matcher, text: str) -> bool:
    copy = compiled.fork()
    return copy.take(ids(text)) and copy.is_accepting


def accepts_value(compiled: Matcher, value: Any) -> bool | None:
    """True if an answer may be this value, in some order of its properties; None if there are too many to try."""
    left = iter(range(_MOST_PIECES))
    try:
        return any(state.is_accepting for state in _after(compiled.fork(), value, left))
    except StopIteration:
        return None


def _after(state: Matcher, value: Any, left: Iterator[int]) -> list[Matcher]:
    """Where the grammar may be once the value has been written."""
    if isinstance(value, dict):
        return [end for begun in _written(state, "{", left) for end in _after_members(begun, value, left, "")]
    if not isinstance(value, list):
        return _written(state, json.dumps(value, ensure_ascii=False), left)
    states = _written(state, "[", left)
    for number, item in enumerate(value):
        begun = [each for state in states for each in _written(state, "," if number else "", left)]
        states = [end for state in begun for end in _after(state, item, left)]
    return [end for state in states for end in _written(state, "]", left)]


def _after_members(state: Matcher, members: dict[str, Any], left: Iterator[int], comma: str) -> list[Matcher]:
    if not members:
        return _written(state, "}", left)
    found: list[Matcher] = []
    for name, value in members.items():
        rest = {other: members[other] for other in members if other != name}
        for named in _written(state, f"{comma}{json.dumps(name, ensure_ascii=False)}:", left):
            for behind in _after(named, value, left):
                found += _after_members(behind, rest, left, ",")
    return found


def _written(state: Matcher, text: str, left: Iterator[int]) -> list[Matcher]:
    next(left)
    copy = state.fork()
    return [copy] if not text or copy.take(ids(text)) else []
