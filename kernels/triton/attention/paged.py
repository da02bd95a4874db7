"""Attention of a step's queries over the paged memory of keys and values, for answers and prompts alike.

A query sees its row's keys up to its own, or up to a given end: in some models the tokens of a picture see one another.

A program computes one tile of queries (`tile.py`) and one head of keys. If there are few queries, the context is cut
into as many splits as the card has room for, each with its own program, and the program that finishes last adds them up
(`split.py`). The length of a split depends on the tile's positions and the card, in the fast form also on the number of
rows.

`attention_paged` uses the fastest tiles for the step. The contents of other rows never change a row's output, but the
step's shape (its rows and tokens, the most queries of a row, whether there are ends) may change the last bits.

`attention_paged_invariant` has one tile size and one order of sums for all steps: a token has the same bits alone, in
company, and however its prompt is chunked. The price is smaller tiles. Ends don't change the bits of queries that see
nothing after themselves: later keys are read, with a weight of 0. Queries are contiguous; block 0 is always readable.
"""

from collections.abc import Callable
from functools import cache, partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...operands import Scoring
from ...paged import DeviceRows, PagedKV
from ...reference.paged_attention import attention_paged, attention_paged_invariant
from ..arrival import MOST, counters, is_last
from ..launch.dependent import dependent, wait_for_previous
from ..launch.tuning import LaunchConfig
from .library import library_for
from .memory import memory_of
from .shape import (
    FEW,
    INVARIANT,
    LIBRARY,
    MANY,
    OURS,
    PROMPTS,
    Tiles,
    tiles_of_few,
    tiles_of_invariant,
    tiles_of_many,
)
from .split import add_splits, store_rows, store_split
from .tile import (
    LOG2_E,
    LaunchRows,
    attend,
    attend_split_by_split,
    first_key,
    queries_at,
    split_length,
    tile_of,
    with_sinks,
)

# The step on which attention to few queries is tuned.
_TRIAL_BYTES = 128 << 20  # of keys and values, at most: more than caches hold
_TRIAL_CONTEXT = 2048
_TRIAL_ROWS = 32
# Counts that differ from step to step: no kernel is compiled again for another value.
_COUNTS = ["num_rows", "tiles_a_row", "least_queries", "most_queries", "splits_at_most", "shortest_split", "window"]


@triton.jit(do_not_specialize=[*_COUNTS, "table_width"])
def attention_kernel(
    query, output, parts, sums, sinks, seen_ends, counters, query_starts, context_lengths, block_tables, keys, values,
    key_scales, value_scales, table_width, num_rows, tiles_a_row, least_queries, most_queries, splits_at_most,
    shortest_split, window, scale, POSITIONS: tl.constexpr, GROUP: tl.constexpr, SHARED: tl.constexpr,
    KEYS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, ADDS_SPLITS: tl.constexpr,
    HAS_SINKS: tl.constexpr, IS_DEPENDENT: tl.constexpr = False,
):  # fmt: skip
    """A program: one tile, one head, and one split or, as always with ends, all of them."""
    wait_for_previous(IS_DEPENDENT)
    head, has_one = tl.program_id(1), tl.num_programs(2) > 1
    number = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles see the most keys, so they begin first
    rows = LaunchRows(query_starts, context_lengths, num_rows, tiles_a_row, least_queries, most_queries)
    tile = tile_of(number, rows, POSITIONS)
    begin, end = first_key(tile.position, window, KEYS), tile.position + POSITIONS
    length = split_length(end - begin, splits_at_most, shortest_split)
    first_split, beyond = begin // length, tl.cdiv(end, length)
    split = first_split + tl.program_id(2)
    if (tile.position >= tile.context) | (split >= beyond):
        return

    own, members = tl.arange(0, POSITIONS * GROUP) // GROUP, tl.arange(0, POSITIONS * GROUP) % GROUP
    positions = tile.position + own
    is_there = (positions >= tile.first) & (positions < tile.context) & (members < SHARED)
    lasts = positions
    if seen_ends is not None:
        # Ends add splits, but change no split's length.
        lasts = tl.load(seen_ends + tile.token + own, mask=is_there, other=0).to(tl.int32) - 1
        end = tl.maximum(end, tl.max(lasts, 0) + 1)
        beyond = tl.cdiv(end, length)
    members += head * SHARED
    heads = (tile.token + own) * (tl.num_programs(1) * SHARED) + members
    queries = queries_at(query + heads.to(tl.int64) * HEAD_DIM, is_there, keys, HEAD_DIM)
    table = block_tables + tile.row.to(tl.int64) * table_width
    memory = memory_of(table, keys, values, key_scales, value_scales, head, tl.num_programs(1), HEAD_DIM)
    firsts = positions - tl.where(window > 0, window, end) + 1
    if ADDS_SPLITS:
        low, high = split, tl.where(has_one, split + 1, beyond)
        weighted, highest, total = attend_split_by_split(
            queries, firsts, lasts, low, high, length, begin, end, tile.context, scale, memory, KEYS, HEAD_DIM,
            BLOCK_SIZE,
        )  # fmt: skip
    else:
        low, high = tl.maximum(split * length, begin), tl.where(has_one, tl.minimum((split + 1) * length, end), end)
        weighted, highest, total = attend(
            queries, firsts, lasts, low, high, tile.context, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE
        )

    if has_one & (beyond - first_split > 1):
        offsets = (number * POSITIONS + own).to(tl.int64) * (tl.num_programs(1) * SHARED) + members
        offsets *= tl.num_programs(2)
        store_split(parts, sums, offsets + split - first_split, is_there, weighted, highest, total, HEAD_DIM)
        if is_last(counters, number * tl.num_programs(1) + head, beyond - first_split):
            add_splits(
                output, heads, parts, sums, offsets, is_there, beyond - first_split, sinks, members, HEAD_DIM, HAS_SINKS
            )
    else:
        if HAS_SINKS:
            weighted, highest, total = with_sinks(weighted, highest, total, sinks, members, is_there)
        store_rows(output, weighted / tl.where(is_there, total, 1.0)[:, None], heads, is_there, HEAD_DIM)


@attention_paged.implement("triton")
def attention_by_shape(
    query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None, sinks: Tensor | None = None
) -> Tensor:
    """Use the same kernel for rows of one query in a step with prompts as in one without."""
    scoring, shared = Scoring(scale, window, sinks), triton.next_power_of_2(query.shape[1] // kv.num_heads)
    few = None
    if rows.seen_ends is None:  # a picture's tokens aren't few
        few = tiles_of_few(kv.kind, shared, rows.max_queries, rows, kv.num_heads)
    if few is None and rows.num_rows > 1 and rows.may_have_answers:
        few = tiles_of_few(kv.kind, shared, 1, rows, kv.num_heads)
    least = 1 if few is None else few.most_queries + 1
    attend_many = partial(_attention_of_many, query, kv, rows, scoring, least)
    output = attend_many() if rows.max_queries >= least else torch.empty_like(query)
    if few is not None:
        _launch(output, query, kv, rows, scoring, few, choice_of_few(query, kv, scale, few))
    return output


def choice_of_few(query: Tensor, kv: PagedKV, scale: float, tiles: Tiles) -> LaunchConfig:
    """The launch configuration for queries, heads and memory like these."""
    key = (kv.head_dim, tiles.positions * tiles.group)
    return FEW[kv.kind].choice(key, _attention_on_trial(query, kv, scale, tiles))


def _attention_on_trial(query: Tensor, kv: PagedKV, scale: float, tiles: Tiles) -> Callable[[LaunchConfig], None]:
    step = cache(partial(_trial_step, query, kv))

    def attend(choice: LaunchConfig) -> None:
        tried, memory, rows = step()
        _launch(torch.empty_like(tried), tried, memory, rows, Scoring(scale), tiles, choice)

    return attend


def _trial_step(query: Tensor, kv: PagedKV) -> tuple[Tensor, PagedKV, DeviceRows]:
    """A decode step that stands for later ones, on which attention to few queries is tuned.

    It has rows of one query each and a memory of zeros, with the heads and format of these arguments. A warm-up's steps
    would not do: their contexts are a few tokens in one block, so they hardly read memory.
    """
    held = [each for each in (kv.keys, kv.values, kv.key_scales, kv.value_scales) if each is not None]
    of_token = sum(each[0].nbytes for each in held) // kv.block_size
    num_rows = min(max(_TRIAL_BYTES // (of_token * _TRIAL_CONTEXT), 1), _TRIAL_ROWS)
    blocks_a_row = -(-_TRIAL_CONTEXT // kv.block_size)
    memory = PagedKV(*(each.new_zeros(num_rows * blocks_a_row, *each.shape[1:]) for each in held))
    # Neighbouring tokens in blocks far from one another, as they are after some time.
    tables = torch.arange(num_rows * blocks_a_row, dtype=torch.int32, device=query.device).view(blocks_a_row, num_rows)
    rows = DeviceRows(
        torch.arange(num_rows + 1, dtype=torch.int32, device=query.device),
        torch.full((num_rows,), _TRIAL_CONTEXT, dtype=torch.int32, device=query.device),
        tables.T.contiguous(),
        torch.full((num_rows,), -1, device=query.device),
        max_queries=1,
        max_context=_TRIAL_CONTEXT,
    )
    return query.new_zeros(num_rows, *query.shape[1:]), memory, rows


def _attention_of_many(query: Tensor, kv: PagedKV, rows: DeviceRows, scoring: Scoring, least: int) -> Tensor:
    """Return the output, which is undefined for rows with fewer than `least` queries."""
    key = (kv.head_dim, triton.next_power_of_2(query.shape[1] // kv.num_heads))

    def attend(choice: LaunchConfig) -> Tensor:
        if choice == LIBRARY and theirs is not None:
            return theirs(query, kv, rows.from_first_prompt(), scoring.scale, scoring.window)
        output = torch.empty_like(query)

        def attend_by_tiles(choice: LaunchConfig) -> None:
            tiles = tiles_of_many(key[1], choice["ROWS"], least, rows, kv.num_heads)
            _launch(output, query, kv, rows, scoring, tiles, choice)

        attend_by_tiles(MANY[kv.kind].choice(key, attend_by_tiles))
        return output

    theirs = None
    if scoring.sinks is None and rows.seen_ends is None:  # no library supports these
        theirs = library_for(query, kv, rows)
    return attend(OURS if theirs is None else PROMPTS[kv.kind].choice(key, attend))


@attention_paged_invariant.implement("triton")
def attention_of_one_shape(
    query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None, sinks: Tensor | None = None
) -> Tensor:
    shared, output = triton.next_power_of_2(query.shape[1] // kv.num_heads), torch.empty_like(query)
    choice = INVARIANT[kv.kind].choice((kv.head_dim,))
    for tiles in tiles_of_invariant(kv.kind, shared, choice["ROWS"], rows, kv.num_heads):
        _launch(output, query, kv, rows, Scoring(scale, window, sinks), tiles, choice)
    return output


def _launch(
    output: Tensor, query: Tensor, kv: PagedKV, rows: DeviceRows, scoring: Scoring, tiles: Tiles, choice: LaunchConfig
) -> None:
    """Write the output of the rows that the tiles are for."""
    num_heads, num_tiles = kv.num_heads, tiles.count(rows)
    seen_ends = rows.seen_ends if tiles.most_queries > 1 else None  # a lone query sees all
    if seen_ends is not None or num_tiles * num_heads > MOST:
        tiles = tiles.unsplit()
    tiles = tiles._replace(split=max(tiles.split, choice["KEYS"]))  # a split is a whole number of steps
    num_splits = tiles.num_splits(rows, scoring.window)
    counts = (rows.num_rows, tiles.a_row, tiles.least_queries, tiles.most_queries)
    shape = (num_tiles * tiles.positions if num_splits > 1 else 0, query.shape[1], num_splits)
    parts = query.new_empty((*shape, kv.head_dim), dtype=torch.float32)
    sums = query.new_empty((*shape, 2), dtype=torch.float32)
    scales = (kv.keys, kv.values) if kv.key_scales is None else (kv.key_scales, kv.value_scales)
    has_sinks = scoring.sinks is not None
    sinks = scoring.sinks if has_sinks else sums
    attention_kernel[num_tiles, num_heads, num_splits](
        query, output, parts, sums, sinks, seen_ends, counters(query.device), rows.query_starts,
        rows.context_lengths, rows.block_tables, kv.keys, kv.values, *scales, rows.block_tables.shape[1], *counts,
        tiles.splits_at_most, tiles.split, scoring.window or 0, scoring.scale * LOG2_E, tiles.positions, tiles.group,
        query.shape[1] // num_heads, choice["KEYS"], kv.head_dim, kv.block_size, tiles.adds_splits, has_sinks,
        num_warps=choice.num_warps, num_stages=choice.num_stages, **dependent(),
    )  # fmt: skip
