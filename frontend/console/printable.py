"""Makes names of models and files, and texts from their files, safe for a terminal or a log: they come from strangers.

Characters that control a terminal, or change the direction of writing, are escaped as in Python.
"""

import re

# Control characters except tab and line feed, marks of direction, and halves of surrogate pairs.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def on_one_line(text: str) -> str:
    """Format for a row of a table, with one cell for each text."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
