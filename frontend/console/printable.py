"""Makes names of models and files, and texts from their files, safe for a terminal or a log: they come from strangers.
Also aligns the columns of tables.

Characters that control a terminal, or change the direction of writing, are escaped as in Python.
"""

import re
from collections.abc import Collection, Sequence

# Control characters except tab and line feed, marks of direction, and halves of surrogate pairs.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def on_one_line(text: str) -> str:
    """Format for a row of a table, with one cell for each text."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line for each row, in columns; those numbered in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
