"""Rewrites JSON schemas for the engine's compiler: refuses what can't be held exactly, simplifies all else.

A grammar only goes forward: it can say what may come, and not what must not be. So a schema is taken apart
(`expansion.py`) into branches (`branches.py`), in which `not`, `oneOf`, `if`, `contains` and the like have become what
may come, and written again (`writer.py`) with the keywords that are left. `scalars.py`, `arrays.py`, `objects.py` and
`applicators.py` have a row for each keyword. A keyword in no table only describes, or is unknown, and is ignored.
"""

from typing import Any

from .expansion import MOST_WORK
from .writer import written


def plain_schema(schema: Any, most_work: int = MOST_WORK) -> dict[str, Any]:
    """The same schema in few keywords; raises `RequestError` where something can't be held, or costs too much work."""
    plain = written(schema, most_work)
    return {"allOf": [plain]} if isinstance(plain, bool) else plain


__all__ = ["MOST_WORK", "plain_schema"]
