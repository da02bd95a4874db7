"""Makes names of models and files, and texts from their files, safe for a terminal or a log: they come from strangers.

What would steer a terminal, or turn the direction of writing, is shown escaped, as Python writes it.
"""

import re

# Control characters without the tabulator and the end of a line, marks of direction, and halves of surrogate pairs.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def on_one_line(text: str) -> str:
    """For a row of a table, which has one place for each text."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
