"""The tables of `penstock top` as lines of text: what fits into a width, in the order that its reader chose."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...console.printable import on_one_line
from .status import span
from .top_figures import Row

_SHORTEST_NAME = 12
Value = Callable[[Any], str]


class Column(NamedTuple):
    title: str
    value: Callable[[Any], str]
    order: Callable[[Any], Any]  # what rows are sorted by
    is_text: bool = False


def _name(row: Row) -> str:
    return row.model if row.tree is None else f"{row.model} tree {row.tree}"


def _number(name: str, form: str) -> Callable[[Row], str]:
    def value(row: Row) -> str:
        found = getattr(row, name)
        return "-" if found is None else form.format(found)

    return value


def _figure(title: str, name: str, form: str) -> Column:
    return Column(title, _number(name, form), lambda row: getattr(row, name) or 0)


# In the order in which they are given up where there is no room, the last one first.
MODELS = (
    Column("MODEL", lambda row: on_one_line(_name(row)), lambda row: (row.model, row.tree or 0), is_text=True),
    Column("STATE", lambda row: row.state, lambda row: row.state, is_text=True),
    _figure("OUT/S", "out_per_second", "{:,.0f}"),
    _figure("ROWS", "running", "{}"),
    _figure("WAIT", "waiting", "{}"),
    _figure("KV", "kv_usage", "{:.0%}"),
    _figure("IN/S", "in_per_second", "{:,.0f}"),
    _figure("HITS", "hits", "{:.0%}"),
    _figure("TTFT MS", "first_token_ms", "{:,.0f}"),
    _figure("TOKEN MS", "token_ms", "{:,.1f}"),
    _figure("DRAFTS", "acceptance", "{:.0%}"),
    _figure("STEP MS", "step_ms", "{:,.1f}"),
)
REQUESTS = (
    Column("REQUEST", lambda each: on_one_line(str(each["id"])), lambda each: str(each["id"]), is_text=True),
    Column("AGE", lambda each: span(each["seconds"]), lambda each: each["seconds"]),
    Column("OUT", lambda each: f"{each['generated_tokens']:,}", lambda each: each["generated_tokens"]),
    Column("STATE", lambda each: on_one_line(each["state"]), lambda each: each["state"], is_text=True),
    Column("IN", lambda each: f"{each['prompt_tokens']:,}", lambda each: each["prompt_tokens"]),
    Column("MODEL", lambda each: on_one_line(each["model"]), lambda each: each["model"], is_text=True),
    Column("ENDPOINT", lambda each: on_one_line(each["endpoint"]), lambda each: each["endpoint"], is_text=True),
)


def sorted_by(rows: Sequence[Any], column: Column, *, is_reversed: bool) -> list[Any]:
    """Texts from A on, numbers from the largest down; `is_reversed`: the other way round."""
    return sorted(rows, key=column.order, reverse=column.is_text == is_reversed)


def table(columns: Sequence[Column], rows: Sequence[Any], width: int, marked: Column | None = None) -> list[str]:
    """The heading and a line for each row, none longer than the width. `marked` is the column they are sorted by."""
    titles = [column.title + ("*" if column is marked else "") for column in columns]
    cells = [titles, *([column.value(row) for column in columns] for row in rows)]
    widths = [max(map(len, each)) for each in zip(*cells, strict=True)]
    shown = len(columns)
    while shown > 1 and min(widths[0], _SHORTEST_NAME) + sum(each + 2 for each in widths[1:shown]) > width:
        shown -= 1
    widths[0] = max(1, min(widths[0], width - sum(each + 2 for each in widths[1:shown])))
    lines = []
    for row in cells:
        parts = [
            _fitted(cell, each) if column.is_text else cell.rjust(each)
            for column, cell, each in zip(columns[:shown], row, widths)
        ]
        lines.append("  ".join(parts).rstrip()[:width])
    return lines


def _fitted(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: max(0, width - 1)] + "…"[:width]
