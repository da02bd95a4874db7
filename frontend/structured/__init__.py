"""Structured outputs: turns the formats that users may give into grammars that the engine compiles.

Begin with `shape.py`, which has a row for each format. `schemas/` simplifies JSON schemas; `ebnf.py`, `tags.py` and,
for tool calls, `calls.py` write Lark.
"""

from .calls import CallGuides
from .shape import grammar_of

__all__ = ["CallGuides", "grammar_of"]
