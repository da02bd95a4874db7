"""Structured outputs: turns the formats that users may give into what the engine compiles.

Begin with `shape.py`, which has a row for each format; `schemas/` simplifies JSON schemas, `ebnf.py` and `tags.py`
write Lark, and so does `calls.py` for calls of tools.
"""

from .calls import CallGuides
from .shape import grammar_of

__all__ = ["CallGuides", "grammar_of"]
