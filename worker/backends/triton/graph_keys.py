"""Which steps are captured: how many rows, tokens of a row and tokens of context a graph holds.

Pure decode steps are captured for any number of rows. Steps whose rows have drafts are captured for a few rows of up to
eight tokens each. Steps with prompts, which may answer other rows, are captured for a few sizes of all their tokens, up
to so many that a card takes longer for them than the host for their launches.
"""

from typing import NamedTuple

_SHORTEST_CONTEXT, _CONTEXT_STEP = 1024, 4
_DRAFTED_ROWS = (8, 4, 2, 1)
_DRAFTED_TOKENS = (8, 4, 2)  # of a row: its last token and its drafts
MOST_PLACES = _DRAFTED_ROWS[0] * _DRAFTED_TOKENS[0]
# Up to 128 tokens such steps have as many spare ones at most, beyond that half as many.
_PROMPT_TOKENS = (4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256, 192, 128, 64, 32, 16)
_PROMPT_ROWS = 4  # or as many as there may be
_TOKENS_OF_SEGMENT = 16


class GraphKey(NamedTuple):
    """The steps that a graph can hold."""

    rows: int  # at most
    tokens: int  # of a row, at most; of all rows, if there are prompts
    context: int  # the longest
    has_adapters: bool
    has_prompts: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.tokens

    @property
    def num_tokens(self) -> int:
        return self.tokens if self.has_prompts else self.rows * self.tokens

    @property
    def segments(self) -> int:
        """For how many there is room, where layers keep states; of prompts some are cut at the ends of blocks."""
        each = 2 * self.rows + self.tokens // _TOKENS_OF_SEGMENT
        return min(self.tokens, each) if self.has_prompts else self.num_tokens

    @property
    def kind(self) -> tuple[bool, bool]:
        """What its steps compute: prompts, or drafts, or neither."""
        return self.has_prompts, not self.has_prompts and self.tokens > 1

    def holds(self, other: "GraphKey") -> bool:
        is_alike = self.has_prompts == other.has_prompts
        return is_alike and all(own >= needed for own, needed in zip(self, other, strict=True))

    def __str__(self) -> str:
        each = f", {self.tokens} tokens of prompts" if self.has_prompts else f" of {self.tokens} tokens"
        each = each if self.tokens > 1 else ""
        return f"{self.rows} rows{each}, context up to {self.context}"


def all_keys(
    most: int,
    longest: int,
    adapted: tuple[bool, ...],
    sizes: tuple[int, ...] = (),
    with_drafts: bool = False,
    most_tokens: int = 0,
) -> list[GraphKey]:
    """All keys for up to `most` rows. The first, the largest, holds every pure decode step; those with prompts of up to
    `most_tokens` follow, and then those with drafts, each again from the largest on."""
    contexts = all_contexts(longest)
    keys = [
        GraphKey(size, 1, context, has) for size in all_sizes(most, sizes) for context in contexts for has in adapted
    ]
    keys += [key for has in adapted for key in _prompt_keys(most, longest, most_tokens, has)]
    if with_drafts:
        shapes = [(rows, tokens) for rows in drafted_sizes(most) for tokens in _DRAFTED_TOKENS]
        keys += [GraphKey(*shape, context, has) for shape in shapes for context in contexts for has in adapted]
    return keys


def _prompt_keys(most: int, longest: int, most_tokens: int, has_adapters: bool) -> list[GraphKey]:
    keys = {
        GraphKey(*shape, prompt_context(shape[0], context, longest), has_adapters, has_prompts=True)
        for tokens in _PROMPT_TOKENS
        for rows in (most, _PROMPT_ROWS)
        for context in all_contexts(longest)
        if (shape := fitting_prompts(min(rows, most, tokens), tokens, most, most_tokens)) is not None
    }
    return sorted(keys, key=lambda key: (key.tokens, key.rows, key.context), reverse=True)


def fitting_prompts(rows: int, tokens: int, most: int, most_tokens: int) -> tuple[int, int] | None:
    """The rows and all tokens of the graph for a step with prompts; None if such a step has none."""
    fitting = [size for size in _PROMPT_TOKENS if tokens <= size <= most_tokens]
    return (most if rows > _PROMPT_ROWS else min(most, _PROMPT_ROWS), min(fitting)) if fitting else None


def prompt_context(rows: int, context: int, longest: int) -> int:
    """The bound of a step's context: few rows are spared little by a shorter one."""
    return fitting_context(context, longest) if rows > _PROMPT_ROWS else longest


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
