"""JSON schemas: random ones with values that are often valid against them, and those of public collections.

Names, constants and sizes of random schemas are few, so that keywords meet: a constant that another branch excludes, a
property that is required here and forbidden there. The public JSON-Schema-Test-Suite lies in the folder that
PENSTOCK_JSON_SCHEMA_SUITE names, such as `tests/draft2020-12` of
https://github.com/json-schema-org/JSON-Schema-Test-Suite. Real schemas with instances lie in the folder that
PENSTOCK_REAL_SCHEMAS names; each file is as MaskBench has them: `{"schema": …, "tests": [{"data": …, "valid": …}]}`.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

SUITE, REAL = "PENSTOCK_JSON_SCHEMA_SUITE", "PENSTOCK_REAL_SCHEMAS"
_MOST_SPELLINGS = 3000


def folder(variable: str) -> Path | None:
    found = os.environ.get(variable)
    return Path(found) if found else None


def groups_of_suite() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema with its instances, and the keyword that its file is named after."""
    for path in sorted(folder(SUITE).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


def real_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder(REAL).glob("*.json")):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))


def spellings(value: Any) -> Iterator[str]:
    """An instance as an answer may write it: its keys in any order, whole numbers without a fraction."""
    return itertools.islice(_spellings(value), _MOST_SPELLINGS)


def _spellings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        orders = itertools.permutations(value) if len(value) <= 4 else [tuple(value)]
        for keys in orders:
            for parts in itertools.product(*(list(_spellings(value[key])) for key in keys)):
                pairs = (f"{json.dumps(key, ensure_ascii=False)}:{part}" for key, part in zip(keys, parts, strict=True))
                yield "{" + ",".join(pairs) + "}"
    elif isinstance(value, list):
        for parts in itertools.product(*(list(_spellings(each)) for each in value)):
            yield "[" + ",".join(parts) + "]"
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e300:
        yield str(int(value))
    else:
        yield json.dumps(value, ensure_ascii=False)


# --- random ones -----------------------------------------------------------------------------------------------------

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
