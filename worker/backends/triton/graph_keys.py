"""Which steps are captured: how many rows, tokens of a row and tokens of context a graph holds.

Pure decode steps are captured for any number of rows. Steps whose rows have drafts are captured for a few rows of up to
eight tokens each; larger ones are launched kernel by kernel.
"""

from typing import NamedTuple

_SHORTEST_CONTEXT, _CONTEXT_STEP = 1024, 4
_DRAFTED_ROWS = (8, 4, 2, 1)
_DRAFTED_TOKENS = (8, 4, 2)  # of a row: its last token and its drafts
MOST_PLACES = _DRAFTED_ROWS[0] * _DRAFTED_TOKENS[0]


class GraphKey(NamedTuple):
    """The steps that a graph can hold."""

    rows: int  # at most
    tokens: int  # of a row, at most
    context: int  # the longest
    has_adapters: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.tokens

    @property
    def num_tokens(self) -> int:
        return self.rows * self.tokens

    def holds(self, other: "GraphKey") -> bool:
        return all(own >= needed for own, needed in zip(self, other, strict=True))

    def __str__(self) -> str:
        each = f" of {self.tokens} tokens" if self.tokens > 1 else ""
        return f"{self.rows} rows{each}, context up to {self.context}"


def all_keys(
    most: int, longest: int, adapted: tuple[bool, ...], sizes: tuple[int, ...] = (), with_drafts: bool = False
) -> list[GraphKey]:
    """All keys for up to `most` rows. The first, the largest, holds every pure decode step; those with drafts are the
    last ones, again from the largest on."""
    shapes = [(size, 1) for size in all_sizes(most, sizes)]
    if with_drafts:
        shapes += [(rows, tokens) for rows in drafted_sizes(most) for tokens in _DRAFTED_TOKENS]
    return [GraphKey(*shape, context, has) for shape in shapes for context in all_contexts(longest) for has in adapted]


def fitting_drafted(rows: int, tokens: int, most: int) -> tuple[int, int] | None:
    """The rows, and the tokens of each, of the graph for so many rows with drafts; None if such steps have none."""
    if rows > _DRAFTED_ROWS[0] or tokens > _DRAFTED_TOKENS[0]:
        return None
    return min(size for size in drafted_sizes(most) if size >= rows), min(
        size for size in _DRAFTED_TOKENS if size >= tokens
    )


def drafted_sizes(most: int) -> list[int]:
    """The numbers of rows for which steps with drafts are captured, the largest first."""
    return sorted({min(size, most) for size in _DRAFTED_ROWS}, reverse=True)


def fitting_size(rows: int, most: int, sizes: tuple[int, ...] = ()) -> int:
    """The graph's size for so many rows: one of `sizes`, or one with few spare rows (at most a quarter, beyond 16)."""
    if fitting := [size for size in sizes if size >= rows]:
        return min(fitting)
    step = 1 if rows <= 4 else 4 if rows <= 32 else 8 if rows <= 64 else 16
    return min(-(-rows // step) * step, max(most, rows))


def all_sizes(most: int, sizes: tuple[int, ...] = ()) -> list[int]:
    """All sizes that `fitting_size` returns, the largest first."""
    return sorted({fitting_size(rows, most, sizes) for rows in range(1, most + 1)}, reverse=True)


def fitting_context(context: int, longest: int) -> int:
    bound = _SHORTEST_CONTEXT
    while bound < context:
        bound *= _CONTEXT_STEP
    return min(bound, max(longest, context))


def all_contexts(longest: int) -> list[int]:
    """All bounds that `fitting_context` returns, the longest first."""
    bounds = [fitting_context(1, longest)]
    while bounds[0] < longest:
        bounds.insert(0, fitting_context(bounds[0] + 1, longest))
    return bounds
