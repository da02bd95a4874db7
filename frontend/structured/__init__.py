"""Structured outputs: turns the formats that users may give into what the engine compiles.

Begin with `shape.py`, which has a row for each format; `schemas/` simplifies JSON schemas, `ebnf.py` and `tags.py`
write Lark.
"""

from .shape import grammar_of

__all__ = ["grammar_of"]
