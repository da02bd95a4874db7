"""Attention of answers straight from their projected heads: each row has one query, and its newest key is its own.

One launch does what `attention/store_heads.py` and `attention/paged.py` do in two. Every program makes its row's
queries ready; the one with a row's last split makes the newest key ready too, stores it with its value, and adds both
to its softmax without reading them back. So no row may read what another one stores in the same step: rows of answers
don't. Formats with scales go the longer way.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...operands import HeadLayout
from ...paged import DeviceRows, PagedKV, Rotation
from ...reference.paged_attention import attention_answers
from ..arrival import MOST, counters, is_last
from ..attention.memory import memory_of
from ..attention.paged import choice_of_few
from ..attention.ready_heads import HeadTransform, ready
from ..attention.shape import FEW, tiles_of_few
from ..attention.split import add_splits, store_rows, store_split
from ..attention.tile import LOG2_E, added, attend, first_key, split_length, with_sinks
from ..launch.compiled import Example
from ..launch.switches import STORING_ANSWERS

_COUNTS = ["splits_at_most", "shortest_split", "window", "table_width"]


class Newest(NamedTuple):
    """A row's newest key and value, of one head: where they come from and where they go."""

    key: tl.tensor  # pointers, to the head as it was projected
    value: tl.tensor
    to_key: tl.tensor
    to_value: tl.tensor


@triton.jit
def _with_newest(
    weighted, highest, total, queries, turned, newest, scale, HEAD_DIM: tl.constexpr, HAS_NORM: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """The softmax with the newest key's in it; that key and its value are stored."""
    one, columns = tl.arange(0, 1), tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_column = columns < HEAD_DIM
    key = ready(newest.key + one, one == 0, columns, turned, HEAD_DIM, HAS_NORM, PAIRS, HEAD_DIM)
    key = key.to(newest.to_key.dtype.element_ty)
    tl.store(newest.to_key + columns[None, :], key, mask=is_column[None, :])
    value = tl.load(newest.value + columns, mask=is_column, other=0).to(newest.to_value.dtype.element_ty)
    tl.store(newest.to_value + columns, value, mask=is_column)
    score = tl.sum(queries.to(tl.float32) * key.to(tl.float32), 1) * scale
    more = tl.broadcast_to(value.to(tl.float32)[None, :], weighted.shape)
    return added(weighted, highest, total, more, score, tl.full(total.shape, 1.0, tl.float32))


@triton.jit(do_not_specialize=_COUNTS)
def answer_kernel(
    heads, output, parts, sums, sinks, counters, query_weight, key_weight, cosines, sines, slots, context_lengths,
    block_tables, keys, values, table_width, splits_at_most, shortest_split, window, scale, epsilon,
    GROUP: tl.constexpr, SHARED: tl.constexpr, NUM_KEYS: tl.constexpr, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """A program: one row, one head of keys, and one split or all of them."""
    row, head, split, has_one = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2) > 1
    context = tl.load(context_lengths + row)
    position = context - 1
    begin = first_key(position, window, KEYS)
    length = split_length(context, splits_at_most, shortest_split)
    first_split, beyond = begin // length, tl.cdiv(context, length)
    if (context <= 0) | (has_one & ((split < first_split) | (split >= beyond))):
        return

    own = heads + row.to(tl.int64) * (NUM_KEYS * (SHARED + 2) * HEAD_DIM)
    members = tl.arange(0, GROUP)
    is_there = members < SHARED
    angles = tl.full((GROUP,), position * HEAD_DIM, tl.int64)
    turned = HeadTransform(query_weight, epsilon, cosines + angles, sines + angles)
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    projected = own + (head * SHARED + members) * HEAD_DIM
    queries = ready(projected, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS, HEAD_DIM)
    queries = queries.to(heads.dtype.element_ty).to(keys.dtype.element_ty)  # rounded as if they had been stored
    table = block_tables + row.to(tl.int64) * table_width
    memory = memory_of(table, keys, values, keys, values, head, NUM_KEYS, HEAD_DIM)
    # What is stored meanwhile is not looked at: all but the newest key, whoever's memory that is in.
    low, high = tl.maximum(split * length, begin), tl.minimum((split + 1) * length, position)
    if not has_one:
        low, high = begin, position
    older = tl.full((GROUP,), position - 1, tl.int32)
    firsts = older - tl.where(window > 0, window - 1, context) + 1
    weighted, highest, total = attend(
        queries, firsts, older, low, high, position, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE
    )
    if (not has_one) | (split == beyond - 1):
        offset = (tl.load(slots + row) * NUM_KEYS + head) * HEAD_DIM
        key = own + (NUM_KEYS * SHARED + head) * HEAD_DIM
        newest = Newest(key, key + NUM_KEYS * HEAD_DIM, keys + offset, values + offset)
        angle = tl.full((1,), position * HEAD_DIM, tl.int64)
        weighted, highest, total = _with_newest(
            weighted, highest, total, queries,
            HeadTransform(key_weight, epsilon, cosines + angle, sines + angle), newest, scale,
            HEAD_DIM, HAS_NORM, PAIRS,
        )  # fmt: skip

    own_heads = head * SHARED + members
    members = row * (NUM_KEYS * SHARED) + own_heads
    if has_one & (beyond - first_split > 1):
        offsets = members.to(tl.int64) * tl.num_programs(2)
        store_split(parts, sums, offsets + split, is_there, weighted, highest, total, HEAD_DIM)
        if is_last(counters, row * NUM_KEYS + head, beyond - first_split):
            add_splits(
                output, members, parts, sums, offsets, is_there, first_split, beyond, sinks, own_heads, HEAD_DIM,
                HAS_SINKS,
            )  # fmt: skip
    else:
        if HAS_SINKS:
            weighted, highest, total = with_sinks(weighted, highest, total, sinks, own_heads, is_there)
        store_rows(output, weighted / tl.where(is_there, total, 1.0)[:, None], members, is_there, HEAD_DIM)


def serves(layout: HeadLayout, kv: PagedKV, rows: DeviceRows) -> bool:
    is_plain = layout.num_rotated == layout.head_dim and not layout.is_gated
    return STORING_ANSWERS.is_on and is_plain and rows.are_answers and kv.key_scales is None


@attention_answers.implement("triton")
def attend_answers(
    heads: Tensor, layout: HeadLayout, rotation: Rotation, kv: PagedKV, rows: DeviceRows, window: int | None
) -> Tensor:
    scale, shared = layout.scale, layout.num_queries // layout.num_keys
    output = heads.new_empty(len(heads), layout.num_queries, layout.head_dim)
    tiles = tiles_of_few(kv.kind, triton.next_power_of_2(shared), 1, rows, kv.num_heads)
    if tiles is None:
        raise ValueError("One token of each row is always few.")
    choice = choice_of_few(output, kv, scale, tiles)
    if rows.num_rows * kv.num_heads > MOST:
        tiles = tiles.unsplit()
    num_splits = tiles.num_splits(rows)
    shape = (rows.num_rows if num_splits > 1 else 0, layout.num_queries, num_splits)
    parts = heads.new_empty((*shape, layout.head_dim), dtype=torch.float32)
    sums = heads.new_empty((*shape, 2), dtype=torch.float32)
    norms, sinks = layout.norms or (heads, heads), sums if layout.sinks is None else layout.sinks
    answer_kernel[rows.num_rows, layout.num_keys, num_splits](
        heads, output, parts, sums, sinks, counters(heads.device), *norms, rotation.cos, rotation.sin, rows.kv_slots,
        rows.context_lengths, rows.block_tables, kv.keys, kv.values, rows.block_tables.shape[1],
        tiles.splits_at_most, tiles.split, window or 0, scale * LOG2_E, layout.epsilon, tiles.group, shared,
        layout.num_keys, choice["KEYS"], layout.head_dim, kv.block_size, layout.norms is not None, layout.rotates_pairs,
        layout.sinks is not None, num_warps=choice.num_warps, num_stages=choice.num_stages,
    )  # fmt: skip
    return output


def examples() -> Iterator[Example]:
    floats = dict.fromkeys(("parts", "sums", "sinks", "query_weight", "key_weight", "cosines", "sines"), "*fp32")
    lists = dict.fromkeys(("counters", "context_lengths", "block_tables"), "*i32") | {"slots": "*i64"}
    numbers = {"scale": "fp32", "epsilon": "fp32"} | dict.fromkeys(_COUNTS, "i32")
    for kind, head_dim in (("bf16", 128), ("fp16", 64), ("bf16", 256)):
        states = dict.fromkeys(("heads", "output", "keys", "values"), f"*{kind}")
        types = states | floats | lists | numbers
        choice = FEW[kind].default(90, (head_dim, 16))
        constants = dict(
            GROUP=16, SHARED=4, NUM_KEYS=8, KEYS=choice["KEYS"], HEAD_DIM=head_dim, BLOCK_SIZE=16,
            HAS_NORM=True, PAIRS=False, HAS_SINKS=False,
        )  # fmt: skip
        aligned = tuple(name for name, of in types.items() if of.startswith("*"))
        yield Example(
            f"answers {kind} {head_dim}", answer_kernel, types, constants, choice.num_warps, choice.num_stages, aligned
        )
