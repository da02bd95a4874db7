"""Causal attention of a step's queries over the paged memory of keys and values, for answers and prompts alike.

A program takes one tile of queries (`attention_tile.py`) and one head of keys. Where queries are few, the context is
split into stretches that have programs of their own, and a second kernel adds these up in ascending order. How long
the stretches are depends on a tile's positions alone.

`attention_paged` takes the tile that is fastest for the step, so a query may come out with other last bits in a step
of another shape (`max_queries`), but never for what stands in other rows. `attention_paged_invariant` has one tile and
one order of sums for all: a token has the same bits alone, in company, and however its prompt was chunked.
Knows nothing of who owns a block.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kv_layout import KV_FORMATS
from ..paged import DeviceRows, PagedKV
from ..reference.paged_attention import attention_paged, attention_paged_invariant
from .attention_shape import (
    FEW,
    INVARIANT,
    MANY,
    Tiles,
    tiles_of_few,
    tiles_of_invariant,
    tiles_of_many,
)
from .attention_tile import (
    added,
    attend,
    attend_split_by_split,
    first_key,
    nothing,
    place_of,
    query_parts,
    split_length,
)
from .compiled import Example
from .packed_memory import Memory
from .tuning import Choice

_LOG2_E = 1.4426950408889634
# Counts that differ from step to step: no kernel is compiled anew for one of them.
_COUNTS = ["num_rows", "tiles_a_row", "splits_at_most", "window"]
# How keys and values are read: as numbers, or as words of numbers that lie together.
_NUMBERS = {"fp32": torch.float32, "fp16": torch.float16}


@triton.jit(do_not_specialize=[*_COUNTS, "table_width"])
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
    dtype: tl.constexpr = keys.dtype.element_ty if PER_WORD == 1 else tl.bfloat16
    taken = query_parts(query + heads * HEAD_DIM, is_there, dtype, HEAD_DIM, PER_WORD)

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
        own_split = tl.where(is_split, split, begin // length)
        beyond = tl.where(is_split, split + 1, tl.cdiv(end, length))
        weighted, highest, total = attend_split_by_split(
            taken, positions, own_split, beyond, length, begin, end, context, reach, scale, memory, KEYS, HEAD_DIM,
            BLOCK_SIZE, KIND, PER_WORD,
        )  # fmt: skip
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


@triton.jit(do_not_specialize=[*_COUNTS, "num_splits"])
def add_splits_kernel(
    output, parts, sums, query_starts, context_lengths, num_rows, tiles_a_row, splits_at_most, window, num_splits,
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


@attention_paged.implement("triton")
def attention_by_shape(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    shared = triton.next_power_of_2(query.shape[1] // kv.num_heads)
    attend_as = partial(_launch, query, kv, rows, scale, window)
    tiles = tiles_of_few(shared, rows.max_queries)
    if tiles:
        attend_few = partial(attend_as, tiles)
        return attend_few(FEW[kv.kind].choice((kv.head_dim, tiles.positions * tiles.group), attend_few))

    def attend_many(choice: Choice) -> Tensor:
        return attend_as(tiles_of_many(shared, choice["ROWS"], rows, kv.num_heads), choice)

    return attend_many(MANY[kv.kind].choice((kv.head_dim,), attend_many))


@attention_paged_invariant.implement("triton")
def attention_of_one_shape(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
    shared = triton.next_power_of_2(query.shape[1] // kv.num_heads)
    choice = INVARIANT[kv.kind].choice((kv.head_dim,))
    tiles = tiles_of_invariant(shared, choice["ROWS"], rows.max_queries)
    return _launch(query, kv, rows, scale, window, tiles, choice)


def _launch(
    query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None, tiles: Tiles, choice: Choice
) -> Tensor:
    """What there is no row for is left as it is."""
    num_heads, per_word = kv.num_heads, KV_FORMATS[kv.kind].per_unit
    num_tiles, num_splits = tiles.count(rows), tiles.num_splits(rows)
    counts = (rows.num_rows, tiles.a_row(rows), tiles.splits_at_most, window or 0)
    output, parts, sums = torch.empty_like(query), query, query
    if num_splits > 1:
        parts = query.new_empty((*query.shape[:2], num_splits, kv.head_dim), dtype=torch.float32)
        sums = query.new_empty((*query.shape[:2], num_splits, 2), dtype=torch.float32)
    keys, values = (memory.view(_NUMBERS.get(kv.kind, torch.int32)) for memory in (kv.keys, kv.values))
    scales = (keys if held is None else held.view(torch.int32) for held in (kv.key_scales, kv.value_scales))
    key_scales, value_scales = scales
    attention_kernel[num_tiles, num_heads, num_splits](
        query, output, parts, sums, rows.query_starts, rows.context_lengths, rows.block_tables, keys, values,
        key_scales, value_scales, rows.block_tables.shape[1], keys.stride(0), key_scales.stride(0), *counts,
        scale * _LOG2_E, tiles.positions, tiles.group, query.shape[1] // num_heads, choice["KEYS"], kv.head_dim,
        kv.block_size, kv.kind, per_word, tiles.adds_splits, num_warps=choice.num_warps, num_stages=choice.num_stages,
    )  # fmt: skip
    if num_splits > 1:
        add_splits_kernel[num_tiles, query.shape[1]](
            output, parts, sums, rows.query_starts, rows.context_lengths, *counts, num_splits, tiles.positions,
            choice["KEYS"], kv.head_dim, num_warps=1,
        )  # fmt: skip
    return output


def examples() -> Iterator[Example]:
    types = _types("bf16")
    types = {name: types[name] for name in add_splits_kernel.arg_names if name in types}
    yield Example("add_splits 128", add_splits_kernel, types, dict(POSITIONS=1, KEYS=64, HEAD_DIM=128), num_warps=1)
    for kind, head_dim in (("bf16", 128), ("fp16", 256), ("uint4", 128)):
        yield _example(kind, head_dim, FEW[kind].default(90, (head_dim, 16)), 16)
    for kind, head_dim in (("bf16", 128), ("uint4", 64)):
        choice = INVARIANT[kind].default(90, (head_dim,))
        yield _example(kind, head_dim, choice, choice["ROWS"], adds_splits=True)
    for targets in ((80, 89), (90,), (100,)):
        for kind, head_dim in (("bf16", 128), ("bf16", 256), ("int8", 128)):
            choice = MANY[kind].default(targets[0], (head_dim,))
            yield replace(_example(kind, head_dim, choice, choice["ROWS"]), targets=targets)


def _example(kind: str, head_dim: int, choice: Choice, num_rows: int, adds_splits: bool = False) -> Example:
    """Of a tile that has 4 query heads."""
    constants = dict(
        POSITIONS=num_rows // 4, GROUP=4, SHARED=4, KEYS=choice["KEYS"], HEAD_DIM=head_dim, BLOCK_SIZE=16, KIND=kind,
        PER_WORD=KV_FORMATS[kind].per_unit, ADDS_SPLITS=adds_splits,
    )  # fmt: skip
    types = _types(kind)
    aligned = (*(name for name, kept in types.items() if kept.startswith("*")), "stride", "scale_stride")
    types = {name: types[name] for name in attention_kernel.arg_names if name in types}
    name = f"attention {kind} {head_dim}, {num_rows} rows"
    return Example(name, attention_kernel, types, constants, choice.num_warps, choice.num_stages, aligned)


def _types(kind: str) -> dict[str, str]:
    lists = dict.fromkeys(("query_starts", "context_lengths", "block_tables", "key_scales", "value_scales"), "*i32")
    counts = dict.fromkeys((*_COUNTS, "table_width", "num_splits", "stride", "scale_stride"), "i32")
    numbers = {"fp32": "*fp32", "fp16": "*fp16"}
    memory = dict.fromkeys(("keys", "values"), numbers.get(kind, "*i32"))
    states = dict.fromkeys(("query", "output"), numbers.get(kind, "*bf16"))
    return lists | counts | memory | states | {"parts": "*fp32", "sums": "*fp32", "scale": "fp32"}
