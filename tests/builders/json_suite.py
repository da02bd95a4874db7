"""The public JSON-Schema-Test-Suite, from the folder that PENSTOCK_JSON_SCHEMA_SUITE names.

That is a folder such as `tests/draft2020-12` of https://github.com/json-schema-org/JSON-Schema-Test-Suite.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "PENSTOCK_JSON_SCHEMA_SUITE"
_MOST_SPELLINGS = 3000


def folder() -> Path | None:
    found = os.environ.get(VARIABLE)
    return Path(found) if found else None


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema with its instances, and the keyword that its file is named after."""
    for path in sorted(folder().glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


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
