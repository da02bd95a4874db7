"""Rewrites JSON schemas for the engine's compiler: refuses those that can't be enforced exactly, and simplifies the
others.

A grammar only goes forward: it can describe what may follow, but can't exclude anything. So a schema is split
(`expansion.py`) into branches (`branches.py`), in which `not`, `oneOf`, `if`, `contains` and the like are expressed by
allowed values. Branches are then written as a schema (`writer.py`) with the remaining keywords. `scalars.py`,
`arrays.py`, `objects.py` and `applicators.py` have a row for each keyword. A keyword in no table is only descriptive or
unknown, and is ignored.
"""

from typing import Any

MOST_WORK = 20_000  # in addition to the schema's size: less than a second


def plain_schema(schema: Any, most_work: int = MOST_WORK) -> dict[str, Any]:
    """The same schema with few keywords; raises `RequestError` if a part can't be enforced, or takes too much work."""
    from .writer import written  # the whole room, for a request that has a schema

    plain = written(schema, most_work)
    return {"allOf": [plain]} if isinstance(plain, bool) else plain
