"""Causal attention of a step's queries over the paged memory of keys and values, for answers and prompts alike.

A program takes one tile of queries (`attention_tile.py`) and one head of keys. Where queries are few, the context is
split into stretches that have programs of their own, and a second kernel adds these up in ascending order. How long
the stretches are depends on a tile's positions alone.

`attention_paged` takes the tile that is fastest for the step, so a query may come out with other last bits in a step
of another shape (`max_queries`), but never for what stands in other rows. `attention_paged_invariant` has one tile and
one order of sums for all: a token has the same bits alone, in company, and however its prompt was chunked.
Knows nothing of who owns a block.
"""

from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kv_layout import KV_FORMATS
from ..paged import DeviceRows, PagedKV
from ..reference.paged_attention import attention_paged, attention_paged_invariant
from .attention_tile import SPLIT, added, attend, first_key, nothing, place_of, split_length
from .packed_memory import Memory
from .tuning import Choice, Key, Tuning

# Programs of one tile and head, at most: partial sums take memory in proportion.
_SPLITS_AT_MOST = 32
# Rows of a tile (queries × heads that share a key head) up to which a step has few queries, and contexts are split.
_FEW_ROWS = 64
# Of every tile of the form without regard for company: the fewest that Hopper's wide products take.
_INVARIANT_ROWS = 64
_LEAST_ROWS = 16  # of any product
# Programs up to which a step of many queries leaves the device idle, so that its contexts are split too.
_FEW_PROGRAMS = 64
_SPLITS_OF_MANY = 8
_LOG2_E = 1.4426950408889634
_COUNTS = ["num_rows", "tiles_a_row", "splits_at_most", "num_splits", "window", "table_width"]
# How keys and values are read: whole words of numbers that lie together, or numbers.
_WORDS = {"fp32": torch.float32, "fp16": torch.float16}


@triton.jit(do_not_specialize=[name for name in _COUNTS if name != "num_splits"])
def attention_kernel(
    query, output, parts, sums, query_starts, context_lengths, block_tables, keys, values, key_scales, value_scales,
    table_width, stride, scale_stride, num_rows, tiles_a_row, splits_at_most, window, scale, POSITIONS: tl.constexpr,
    GROUP: tl.constexpr, SHARED: tl.constexpr, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr, PER_WORD: tl.constexpr, ADDS_SPLITS: tl.constexpr,
):  # fmt: skip
    """A program: one tile, one head, and one split or all of them."""
    head, split = tl.program_id(1), tl.program_id(2)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # late tiles see the most keys, so they begin first
    row, position, token, first, context = place_of(
        tile, query_starts, context_lengths, num_rows, tiles_a_row, POSITIONS
    )
    if position >= context:
        return
    begin, end = first_key(position, window, KEYS), position + POSITIONS
    length = split_length(end, splits_at_most)
    is_split = tl.num_programs(2) > 1
    if is_split & ((split * length >= end) | ((split + 1) * length <= begin)):
        return

    own = tl.arange(0, POSITIONS * GROUP)
    positions, members = position + own // GROUP, own % GROUP
    is_there = (positions >= first) & (positions < context) & (members < SHARED)
    heads = (token + own // GROUP).to(tl.int64) * (tl.num_programs(1) * SHARED) + head * SHARED + members
    columns = tl.arange(0, max(triton.next_power_of_2(HEAD_DIM), 16 * PER_WORD))
    pointers = query + heads[:, None] * HEAD_DIM + columns[None, :]
    taken = tl.load(pointers, mask=is_there[:, None] & (columns < HEAD_DIM)[None, :], other=0)
    taken = taken.to(keys.dtype.element_ty if PER_WORD == 1 else tl.bfloat16)

    head = head.to(tl.int64)
    share: tl.constexpr = HEAD_DIM // PER_WORD * BLOCK_SIZE
    scale_share: tl.constexpr = BLOCK_SIZE if KIND == "uint4" else BLOCK_SIZE // 2
    table = block_tables + row.to(tl.int64) * table_width
    if KIND == "int8" or KIND == "uint4":
        key_scales += head * scale_share
        value_scales += head * scale_share
    memory = Memory(table, keys + head * share, values + head * share, key_scales, value_scales, stride, scale_stride)
    reach = tl.where(window > 0, window, end)
    if ADDS_SPLITS:
        weighted, highest, total = nothing(POSITIONS * GROUP, HEAD_DIM)
        each = tl.where(is_split, split, begin // length)
        beyond = tl.where(is_split, split + 1, tl.cdiv(end, length))
        while each < beyond:
            low, high = tl.maximum(each * length, begin), tl.minimum((each + 1) * length, end)
            more, more_highest, more_total = attend(
                taken, positions, low, high, context, reach, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD
            )
            weighted, highest, total = added(weighted, highest, total, more, more_highest, more_total)
            each += 1
    else:
        low, high = tl.maximum(split * length, begin), tl.minimum((split + 1) * length, end)
        weighted, highest, total = attend(
            taken, positions, low, high, context, reach, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD
        )

    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_stored = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    if is_split:
        places = heads * tl.num_programs(2) + split
        tl.store(parts + places[:, None] * HEAD_DIM + columns[None, :], weighted, mask=is_stored)
        tl.store(sums + places * 2, highest, mask=is_there)
        tl.store(sums + places * 2 + 1, total, mask=is_there)
    else:
        attended = (weighted / tl.where(is_there, total, 1.0)[:, None]).to(output.dtype.element_ty)
        tl.store(output + heads[:, None] * HEAD_DIM + columns[None, :], attended, mask=is_stored)


@triton.jit(do_not_specialize=[name for name in _COUNTS if name != "table_width"])
def add_splits_kernel(
    output, parts, sums, query_starts, context_lengths, num_rows, tiles_a_row, splits_at_most, num_splits, window,
    POSITIONS: tl.constexpr, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """A program: the queries of one tile and one query head."""
    _row, position, token, first, context = place_of(
        tl.program_id(0), query_starts, context_lengths, num_rows, tiles_a_row, POSITIONS
    )
    if position >= context:
        return
    length = split_length(position + POSITIONS, splits_at_most)
    positions = position + tl.arange(0, POSITIONS)
    is_there = (positions >= first) & (positions < context)
    heads = (token + tl.arange(0, POSITIONS)).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_stored = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    weighted, highest, total = nothing(POSITIONS, HEAD_DIM)
    begin = first_key(position, window, KEYS)
    for split in tl.range(begin // length, tl.cdiv(position + POSITIONS, length), num_stages=4):
        places = heads * num_splits + split
        more = tl.load(parts + places[:, None] * HEAD_DIM + columns[None, :], mask=is_stored, other=0)
        more_highest = tl.load(sums + places * 2, mask=is_there, other=float("-inf"))
        more_total = tl.load(sums + places * 2 + 1, mask=is_there, other=0)
        weighted, highest, total = added(weighted, highest, total, more, more_highest, more_total)
    attended = (weighted / tl.where(is_there, total, 1.0)[:, None]).to(output.dtype.element_ty)
    tl.store(output + heads[:, None] * HEAD_DIM + columns[None, :], attended, mask=is_stored)


class _Tiles(NamedTuple):
    """How a step's queries are cut into tiles, and contexts into splits."""

    positions: int
    group: int  # query heads in a tile: those that share a key head, and some that are not there
    splits_at_most: int
    is_split: bool  # whether each split has a program
    adds_splits: bool = False

    def a_row(self, rows: DeviceRows) -> int:
        """Tiles that every row has; 0 where that would be many more than are needed, and rows are searched for."""
        most = 1 if rows.max_queries == 1 else (rows.max_queries - 2) // self.positions + 2
        return most if most <= 2 else 0

    def count(self, rows: DeviceRows) -> int:
        """A row of n queries, wherever it begins, has n / positions + 2 tiles at most."""
        return rows.num_rows * self.a_row(rows) or len(rows.kv_slots) // self.positions + 2 * rows.num_rows

    def num_splits(self, rows: DeviceRows) -> int:
        end = -(-rows.max_context // self.positions) * self.positions
        return min(self.splits_at_most, -(-end // SPLIT.value)) if self.is_split else 1


def _few_default(architecture: int, key: Key) -> Choice:
    number, _, _ = key
    return Choice.of(4, 3, KEYS=_least_keys(number))


def _many_default(architecture: int, key: Key) -> Choice:
    number, _, _ = key
    return Choice.of(8, 3, KEYS=_least_keys(number), ROWS=128)


def _invariant_default(architecture: int, key: Key) -> Choice:
    number, _, _ = key
    return Choice.of(4, 3, KEYS=_least_keys(number))


def _least_keys(number: int) -> int:
    """A product over keys takes at least 16 at once, and there is one for each place in a word."""
    return max(64, 16 * _FORMS[number].per_unit)


_FORMS = list(KV_FORMATS.values())
FEW = Tuning("attention_few", _few_default, [])
MANY = Tuning("attention_many", _many_default, [])
INVARIANT = Tuning("attention_invariant", _invariant_default, [])


@attention_paged.implement("triton")
def attention_by_shape(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    shared = triton.next_power_of_2(query.shape[1] // kv.num_heads)
    positions = triton.next_power_of_2(rows.max_queries)
    is_few = positions * shared <= _FEW_ROWS
    key = (KV_FORMATS[kv.kind].number, kv.head_dim, max(_LEAST_ROWS, positions * shared) if is_few else 0)
    attend_as = partial(_launch, query, kv, rows, scale, window)
    if is_few:
        tiles = _Tiles(positions, max(shared, _LEAST_ROWS // positions), _SPLITS_AT_MOST, is_split=True)
        return attend_as(tiles, FEW.choice(key, partial(attend_as, tiles)))

    def attend_many(choice: Choice) -> Tensor:
        tiles = _Tiles(max(1, choice["ROWS"] // shared), shared, 1, is_split=False)
        if tiles.count(rows) * kv.num_heads <= _FEW_PROGRAMS:
            tiles = tiles._replace(splits_at_most=_SPLITS_OF_MANY, is_split=True)
        return attend_as(tiles, choice)

    return attend_many(MANY.choice(key, attend_many))


@attention_paged_invariant.implement("triton")
def attention_of_one_shape(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    shared = triton.next_power_of_2(query.shape[1] // kv.num_heads)
    positions = max(1, _INVARIANT_ROWS // shared)
    tiles = _Tiles(
        positions, shared, _SPLITS_AT_MOST, is_split=rows.max_queries * shared <= _FEW_ROWS, adds_splits=True
    )
    key = (KV_FORMATS[kv.kind].number, kv.head_dim, 0)
    return _launch(query, kv, rows, scale, window, tiles, INVARIANT.choice(key))


def _launch(
    query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None, tiles: _Tiles, choice: Choice
) -> Tensor:
    num_heads, per_word = kv.num_heads, KV_FORMATS[kv.kind].per_unit
    num_tiles, num_splits = tiles.count(rows), tiles.num_splits(rows)
    counts = (rows.num_rows, tiles.a_row(rows), tiles.splits_at_most)
    output, parts, sums = torch.empty_like(query), query, query
    if num_splits > 1:
        parts = query.new_empty((*query.shape[:2], num_splits, kv.head_dim), dtype=torch.float32)
        sums = query.new_empty((*query.shape[:2], num_splits, 2), dtype=torch.float32)
    keys, values = (memory.view(_WORDS.get(kv.kind, torch.int32)) for memory in (kv.keys, kv.values))
    key_scales, value_scales = (
        keys if scales is None else scales.view(torch.int32) for scales in (kv.key_scales, kv.value_scales)
    )
    attention_kernel[num_tiles, num_heads, num_splits](
        query, output, parts, sums, rows.query_starts, rows.context_lengths, rows.block_tables, keys, values,
        key_scales, value_scales, rows.block_tables.shape[1], keys.stride(0), key_scales.stride(0), *counts,
        window or 0, scale * _LOG2_E, tiles.positions, tiles.group, query.shape[1] // num_heads, choice["KEYS"],
        kv.head_dim, kv.block_size, kv.kind, per_word, tiles.adds_splits, num_warps=choice.num_warps,
        num_stages=choice.num_stages,
    )  # fmt: skip
    if num_splits > 1:
        add_splits_kernel[num_tiles, query.shape[1]](
            output, parts, sums, rows.query_starts, rows.context_lengths, *counts, num_splits, window or 0,
            tiles.positions, choice["KEYS"], kv.head_dim, num_warps=1,
        )  # fmt: skip
    return output
