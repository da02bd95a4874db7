"""Where a tile of queries lies in a step, and what its softmax is over a stretch of the row's stored tokens.

A tile is POSITIONS neighbouring positions of one row, counted from the request's first, times the query heads that
share a key head. So a query has the same place in its tile whatever else the step computes, and which keys a tile
looks at, in which order, depends on the tile's positions alone. Knows nothing of who adds stretches up.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ..packed_numbers import UINT4_ZERO, in_parts, numbers
from .packed_memory import key_words, scales_of, value_words


class StepRows(NamedTuple):
    """The rows of a step: `DeviceRows`, and which of them a launch is for, by their number of queries."""

    query_starts: tl.tensor
    context_lengths: tl.tensor
    num_rows: tl.tensor
    tiles_a_row: tl.tensor  # 0: as many as a row's queries may need
    least_queries: tl.tensor
    most_queries: tl.tensor


class Tile(NamedTuple):
    row: tl.tensor
    position: tl.tensor  # of its first query, whether that is there or not
    token: tl.tensor  # of the step, at that position
    first: tl.tensor  # the row's first position in this step
    context: tl.tensor


@triton.jit
def tile_of(number, rows, POSITIONS: tl.constexpr):
    """A tile by its number; there is nothing to do where its position is not below its context."""
    if rows.tiles_a_row > 0:
        row = number // rows.tiles_a_row
        before = row * rows.tiles_a_row
    else:
        row = number * 0
        beyond = row + rows.num_rows
        while beyond - row > 1:
            middle = (row + beyond) // 2
            if tl.load(rows.query_starts + middle) // POSITIONS + 2 * middle <= number:
                row = middle
            else:
                beyond = middle
        before = tl.load(rows.query_starts + row) // POSITIONS + 2 * row
    start, context = tl.load(rows.query_starts + row), tl.load(rows.context_lengths + row)
    queries = tl.load(rows.query_starts + row + 1) - start
    is_meant = (queries >= rows.least_queries) & (queries <= rows.most_queries)
    first = tl.maximum(context - queries, 0)
    position = (first // POSITIONS + number - before) * POSITIONS
    return Tile(row, position, start + position - first, first, tl.where(is_meant, context, 0))


@triton.jit
def split_length(end, splits_at_most, shortest):
    """Of the stretches that positions below `end` are split into."""
    length = end * 0 + shortest
    while length * splits_at_most < end:
        length *= 2
    return length


@triton.jit
def first_key(position, window, KEYS: tl.constexpr):
    """Where a tile from this position on begins to look, at a multiple of KEYS; a window of 0 is none."""
    return tl.where(window > 0, tl.maximum(position - window + 1, 0), 0) // KEYS * KEYS


@triton.jit
def weight_of(score, highest):
    """The exponential of a score relative to the highest one, or of an older maximum; 0 where nothing was seen yet."""
    return tl.exp2(score - tl.where(highest == float("-inf"), 0.0, highest))


@triton.jit
def nothing(ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """A softmax over no keys: weighted values, highest score, sum of weights."""
    weighted = tl.zeros((ROWS, triton.next_power_of_2(HEAD_DIM)), tl.float32)
    return weighted, tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)


@triton.jit
def added(weighted, highest, total, more_weighted, more_highest, more_total):
    """Two softmaxes over different keys as one. Fused by name, so that every kernel rounds alike."""
    most = tl.maximum(highest, more_highest)
    kept, more = weight_of(highest, most), weight_of(more_highest, most)
    by_row = tl.broadcast_to(kept[:, None], weighted.shape)
    return tl.fma(weighted, by_row, more_weighted * more[:, None]), most, tl.fma(total, kept, more_total * more)


@triton.jit
def query_parts(rows, is_there, DTYPE: tl.constexpr, HEAD_DIM: tl.constexpr, PER_WORD: tl.constexpr):
    """A tile's queries by their place in a word of keys: PER_WORD tiles [rows, words], from pointers to the rows.

    Each is loaded by itself, since only what comes from a load without detour is multiplied out of shared memory, where
    it takes no registers.
    """
    first = tl.arange(0, max(triton.next_power_of_2(HEAD_DIM) // PER_WORD, 16)) * PER_WORD
    is_column = is_there[:, None] & (first < HEAD_DIM)[None, :]
    parts = (tl.load(rows[:, None] + first[None, :], mask=is_column, other=0).to(DTYPE),)
    for place in tl.static_range(1, PER_WORD):
        parts = parts + (tl.load(rows[:, None] + first[None, :] + place, mask=is_column, other=0).to(DTYPE),)
    return parts


@triton.jit
def attend(
    parts, positions, first, last, context, reach, scale, memory, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
):  # fmt: skip
    """The softmax of queries, given in parts, over the keys first:last, each seeing the last `reach` up to its own.

    `scale` makes scores powers of 2.
    """
    ROWS: tl.constexpr = positions.shape[0]
    UNITS: tl.constexpr = parts[0].shape[1]
    weighted, highest, total = nothing(ROWS, HEAD_DIM)
    query_sums = tl.zeros_like(total)
    if KIND == "uint4":  # what minima add to scores, and to every dimension of the values
        for place in tl.static_range(PER_WORD):
            query_sums += tl.sum(parts[place].to(tl.float32), 1)
    offset = tl.zeros_like(total)
    # Counted in steps, since the compiler then knows that a step begins at a multiple of KEYS, and copies wide.
    for step in range(first // KEYS, tl.cdiv(last, KEYS)):
        start = step * KEYS
        tokens = start + tl.arange(0, KEYS)
        words = key_words(memory, tokens, context, UNITS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD)
        scores = tl.zeros((ROWS, KEYS), tl.float32)
        for place in tl.static_range(PER_WORD):
            scores = tl.dot(parts[place], numbers(words, place, KIND), scores, input_precision="ieee")
        if KIND == "int8" or KIND == "uint4":
            scales = scales_of(memory.key_scales, memory, start, context, 0, KEYS, BLOCK_SIZE)
            scores *= scales[None, :]
        if KIND == "uint4":
            minima = scales_of(memory.key_scales, memory, start, context, 1, KEYS, BLOCK_SIZE)
            scores += query_sums[:, None] * (minima - UINT4_ZERO * scales)[None, :]
        is_seen = (tokens[None, :] <= positions[:, None]) & (tokens[None, :] > positions[:, None] - reach)
        scores = tl.where(is_seen, scores * scale, float("-inf"))

        most = tl.maximum(highest, tl.max(scores, 1))
        kept, weights = weight_of(highest, most), weight_of(scores, most[:, None])
        highest, total = most, total * kept + tl.sum(weights, 1)
        weighted *= kept[:, None]
        if KIND == "uint4":
            minima = scales_of(memory.value_scales, memory, start, context, 1, KEYS, BLOCK_SIZE)
            of_minima = weights * minima[None, :]
        if KIND == "int8" or KIND == "uint4":
            weights *= scales_of(memory.value_scales, memory, start, context, 0, KEYS, BLOCK_SIZE)[None, :]
        rounded = weights.to(parts[0].dtype)
        if KIND == "uint4":
            offset = offset * kept + tl.sum(
                tl.fma(rounded.to(tl.float32), tl.full(weights.shape, -UINT4_ZERO, tl.float32), of_minima), 1
            )
        words = value_words(memory, start, context, KEYS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD)
        weight_parts = in_parts(rounded, PER_WORD)
        for place in tl.static_range(PER_WORD):
            weighted = tl.dot(weight_parts[place], numbers(words, place, KIND), weighted, input_precision="ieee")
    return weighted + offset[:, None], highest, total


@triton.jit
def attend_split_by_split(
    parts, positions, split, beyond, length, first, last, context, reach, scale, memory, KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
):  # fmt: skip
    """`attend` to each split by itself and add them up: the bits of programs that have one split each."""
    weighted, highest, total = nothing(positions.shape[0], HEAD_DIM)
    while split < beyond:
        low, high = tl.maximum(split * length, first), tl.minimum((split + 1) * length, last)
        more, more_highest, more_total = attend(
            parts, positions, low, high, context, reach, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD
        )
        weighted, highest, total = added(weighted, highest, total, more, more_highest, more_total)
        split += 1
    return weighted, highest, total
