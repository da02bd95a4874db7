"""Finds a tile of queries in a step, and computes its softmax over a range of the row's stored tokens.

A tile is POSITIONS neighbouring positions of one row, counted from the request's first, times the query heads that
share a key head. So a query has the same place in its tile whatever else the step computes, and the keys that a tile
reads, and their order, depend only on the tile's positions.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .memory import keys_at, places_of, scales_at, values_at

LOG2_E = 1.4426950408889634  # weights are powers of 2: exp(x) = 2^(x * log2(e))
_LOG2_E = tl.constexpr(LOG2_E)


class LaunchRows(NamedTuple):
    """The rows of a step (`DeviceRows`), and the numbers of queries of the rows that a launch is for."""

    query_starts: tl.tensor
    context_lengths: tl.tensor
    num_rows: tl.tensor
    tiles_a_row: tl.tensor  # 0: it differs from row to row
    least_queries: tl.tensor
    most_queries: tl.tensor


class Tile(NamedTuple):
    row: tl.tensor
    position: tl.tensor  # of its first query, even if the step doesn't have that query
    token: tl.tensor  # the step's token at that position
    first: tl.tensor  # the row's first position in this step
    context: tl.tensor


@triton.jit
def tile_of(number, rows, POSITIONS: tl.constexpr):
    """Return a tile by its number; it is empty if its position is not below its context."""
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
def split_length(seen, splits_at_most, shortest):
    """Return the length of a tile's splits, which depends on how many keys the tile sees."""
    length = seen * 0 + shortest
    while length * splits_at_most < seen:
        length *= 2
    return length


@triton.jit
def first_key(position, window, KEYS: tl.constexpr):
    """Return the first key that a tile at this position reads, a multiple of KEYS; a window of 0 means none."""
    return tl.where(window > 0, tl.maximum(position - window + 1, 0), 0) // KEYS * KEYS


@triton.jit
def weight_of(score, highest):
    """Return 2^(score - highest), of a score or of an older maximum; 0 if nothing has been seen yet."""
    return tl.exp2(score - tl.where(highest == float("-inf"), 0.0, highest))


@triton.jit
def nothing(ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """A softmax over no keys: weighted values, highest score, sum of weights."""
    weighted = tl.zeros((ROWS, triton.next_power_of_2(HEAD_DIM)), tl.float32)
    return weighted, tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)


@triton.jit
def added(weighted, highest, total, more_weighted, more_highest, more_total):
    """Merge two softmaxes over different keys. The explicit fma makes every kernel round alike."""
    most = tl.maximum(highest, more_highest)
    kept, more = weight_of(highest, most), weight_of(more_highest, most)
    by_row = tl.broadcast_to(kept[:, None], weighted.shape)
    return tl.fma(weighted, by_row, more_weighted * more[:, None]), most, tl.fma(total, kept, more_total * more)


@triton.jit
def with_sinks(weighted, highest, total, sinks, heads, is_there):
    """Add each row's sink to its softmax: the score of a value that is 0."""
    sink = tl.load(sinks + heads, mask=is_there, other=0) * _LOG2_E
    most = tl.maximum(highest, sink)
    kept = weight_of(highest, most)
    by_row = tl.broadcast_to(kept[:, None], weighted.shape)
    return weighted * by_row, most, tl.fma(total, kept, weight_of(sink, most))


@triton.jit
def queries_at(heads, is_there, keys, HEAD_DIM: tl.constexpr):
    """Load a tile's queries [rows, columns] from pointers to the rows, in the format in which keys are multiplied."""
    stored: tl.constexpr = keys.dtype.element_ty
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_number = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    queries = tl.load(heads[:, None] + columns[None, :], mask=is_number, other=0)
    return queries.to(tl.bfloat16 if stored == tl.int8 else stored)


@triton.jit
def attend(
    queries, firsts, lasts, first, last, context, scale, memory, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Compute the softmax of queries over the keys first:last; a query sees those from its entry of `firsts` to that of
    `lasts`. `scale` includes LOG2_E."""
    HAS_SCALES: tl.constexpr = memory.key_heads.dtype.element_ty == tl.int8
    weighted, highest, total = nothing(lasts.shape[0], HEAD_DIM)
    if HAS_SCALES:
        # Loaded a step ahead: loads as narrow as these aren't pipelined through shared memory, and would stall.
        key_scales, value_scales = scales_at(memory, first // KEYS * KEYS + tl.arange(0, KEYS), context, BLOCK_SIZE)
    for step in range(first // KEYS, tl.cdiv(last, KEYS)):
        tokens = step * KEYS + tl.arange(0, KEYS)
        is_there, offsets = tokens < context, places_of(memory, tokens, context, BLOCK_SIZE)
        scores = tl.dot(queries, tl.trans(keys_at(memory, offsets, HEAD_DIM)), input_precision="ieee")
        if HAS_SCALES:
            scores *= key_scales[None, :]
        is_seen = (tokens[None, :] >= firsts[:, None]) & (tokens[None, :] <= lasts[:, None])
        scores = tl.where(is_seen, scores * scale, float("-inf"))

        most = tl.maximum(highest, tl.max(scores, 1))
        kept, weights = weight_of(highest, most), weight_of(scores, most[:, None])
        highest, total = most, total * kept + tl.sum(weights, 1)
        if HAS_SCALES:
            weights *= value_scales[None, :]
            key_scales, value_scales = scales_at(memory, tokens + KEYS, context, BLOCK_SIZE)
        values = values_at(memory, offsets, is_there, HEAD_DIM)
        weighted = tl.dot(weights.to(queries.dtype), values, weighted * kept[:, None], input_precision="ieee")
    return weighted, highest, total


@triton.jit
def attend_split_by_split(
    queries, firsts, lasts, split, beyond, length, first, last, context, scale, memory, KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Attend to the splits one by one and add them up, with the bits of programs that have one split each."""
    weighted, highest, total = nothing(lasts.shape[0], HEAD_DIM)
    while split < beyond:
        low, high = tl.maximum(split * length, first), tl.minimum((split + 1) * length, last)
        more, more_highest, more_total = attend(
            queries, firsts, lasts, low, high, context, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE
        )
        weighted, highest, total = added(weighted, highest, total, more, more_highest, more_total)
        split += 1
    return weighted, highest, total
