"""Rewrites JSON schemas for the engine's compiler: refuses what can't be held exactly, simplifies all else.

A grammar only goes forward: it can say what may come, and not what must not be. So a schema is taken apart
(`expansion.py`) into branches (`branches.py`), in which `not`, `oneOf`, `if`, `contains` and the like have become what
may come, and written again (`writer.py`) with the keywords that are left. `scalars.py`, `arrays.py`, `objects.py` and
`applicators.py` have a row for each keyword. A keyword in no table only describes, or is unknown, and is ignored.
"""

from typing import Any

from .writer import written


def plain_schema(schema: Any) -> dict[str, Any]:
    """The same schema in few keywords; raises `RequestError` where something can't be held."""
    plain = written(schema)
    return {"allOf": [plain]} if isinstance(plain, bool) else plain


__all__ = ["plain_schema"]
