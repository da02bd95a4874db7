"""The shape that an answer is to have, from the ways in which a person may write it to what the engine compiles.

`shape.py` has a row for each way; `schemas/` writes JSON schemas plainly, `ebnf.py` and `tags.py` write Lark.
"""

from .shape import grammar_of

__all__ = ["grammar_of"]
