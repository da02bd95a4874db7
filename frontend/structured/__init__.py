"""The shape that an answer is to have, from the ways in which a person may write it to what the engine compiles.

`shape.py` has a row for each way; `schema.py` checks JSON schemas, `ebnf.py` and `tags.py` write grammars in Lark.
"""

from .shape import grammar_of

__all__ = ["grammar_of"]
