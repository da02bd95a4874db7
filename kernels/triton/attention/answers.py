"""Attention of answers straight from their projected heads: each row has one query, and its newest key is its own.

One launch does what `store_heads.py` and `paged.py` do in two. Every program makes its row's queries ready; the one
with a row's last split makes the newest key ready too, stores it with its value, and adds both to its softmax without
reading them back. So no row may read what another one stores in the same step: rows of answers don't. Formats with
scales go the longer way. Knows nothing of who owns a block.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...heads import HeadForm
from ...kv_layout import KV_FORMATS
from ...paged import DeviceRows, PagedKV, Rotation
from ...reference.answers import attention_answers
from ..arrival import MOST, counters, is_last
from ..compiled import Example
from ..switches import STORING_ANSWERS
from .packed_memory import memory_of
from .paged import LOG2_E, choice_of_few
from .ready_heads import Turned, ready
from .shape import FEW, tiles_of_few
from .split import add_splits, store_rows, store_split
from .tile import added, attend, first_key, split_length

# How keys and values of the formats that are served are stored, and read: as numbers, or as words of two.
_STORED = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_READ = {**_STORED, "bf16": torch.int32}
_COUNTS = ["splits_at_most", "shortest_split", "window", "table_width"]


class Newest(NamedTuple):
    """A row's newest key and value, of one head: where they come from and where they go."""

    key: tl.tensor  # pointers, to the head as it was projected
    value: tl.tensor
    to_keys: tl.tensor  # to the block
    to_values: tl.tensor
    offset: tl.tensor  # in it


@triton.jit
def _ready_queries(
    heads, is_there, turned, to, DTYPE: tl.constexpr, HEAD_DIM: tl.constexpr, PER_WORD: tl.constexpr,
    HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """By their place in a word of keys: PER_WORD tiles [queries, words], rounded as if they had been stored."""
    first = tl.arange(0, max(triton.next_power_of_2(HEAD_DIM) // PER_WORD, 16)) * PER_WORD
    parts = (ready(heads, is_there, first, turned, HEAD_DIM, HAS_NORM, PAIRS).to(to).to(DTYPE),)
    for place in tl.static_range(1, PER_WORD):
        parts = parts + (ready(heads, is_there, first + place, turned, HEAD_DIM, HAS_NORM, PAIRS).to(to).to(DTYPE),)
    return parts


@triton.jit
def _with_newest(
    weighted, highest, total, parts, turned, newest, scale, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PER_WORD: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """The softmax with the newest key's in it; that key and its value are stored."""
    one = tl.arange(0, 1)
    first = tl.arange(0, parts[0].shape[1]) * PER_WORD
    score = tl.zeros_like(total)
    for place in tl.static_range(PER_WORD):
        columns = first + place
        key = ready(newest.key + one, one == 0, columns, turned, HEAD_DIM, HAS_NORM, PAIRS)
        key = key.to(newest.to_keys.dtype.element_ty)
        places = (columns // PER_WORD * BLOCK_SIZE + newest.offset) * PER_WORD + place
        tl.store(newest.to_keys + places[None, :], key, mask=(columns < HEAD_DIM)[None, :])
        score += tl.sum(parts[place].to(tl.float32) * key.to(tl.float32), 1)
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    value = tl.load(newest.value + columns, mask=columns < HEAD_DIM, other=0).to(newest.to_values.dtype.element_ty)
    places = (newest.offset // PER_WORD * HEAD_DIM + columns) * PER_WORD + newest.offset % PER_WORD
    tl.store(newest.to_values + places, value, mask=columns < HEAD_DIM)
    more = tl.broadcast_to(value.to(tl.float32)[None, :], weighted.shape)
    return added(weighted, highest, total, more, score * scale, tl.full(total.shape, 1.0, tl.float32))


@triton.jit(do_not_specialize=_COUNTS)
def answer_kernel(
    heads, output, parts, sums, counters, query_weight, key_weight, cosines, sines, slots, context_lengths,
    block_tables, keys, values, key_words, value_words, table_width, stride, splits_at_most, shortest_split, window,
    scale, epsilon, GROUP: tl.constexpr, SHARED: tl.constexpr, NUM_KEYS: tl.constexpr, KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
    HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
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
    turned = Turned(query_weight, epsilon, cosines + angles, sines + angles)
    dtype: tl.constexpr = keys.dtype.element_ty
    taken = _ready_queries(
        own + (head * SHARED + members) * HEAD_DIM, is_there, turned, heads.dtype.element_ty, dtype, HEAD_DIM,
        PER_WORD, HAS_NORM, PAIRS,
    )  # fmt: skip
    memory = memory_of(
        block_tables + row.to(tl.int64) * table_width, key_words, value_words, key_words, value_words, stride, stride,
        head, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD,
    )  # fmt: skip
    # What is stored meanwhile is not looked at: all but the newest key, whoever's memory that is in.
    low, high = tl.maximum(split * length, begin), tl.minimum((split + 1) * length, position)
    if not has_one:
        low, high = begin, position
    older = tl.full((GROUP,), position - 1, tl.int32)
    reach = tl.where(window > 0, window - 1, context)
    weighted, highest, total = attend(
        taken, older, low, high, position, reach, scale, memory, KEYS, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD
    )
    if (not has_one) | (split == beyond - 1):
        slot = tl.load(slots + row)
        place = (slot // BLOCK_SIZE * NUM_KEYS + head) * (BLOCK_SIZE * HEAD_DIM)
        key = own + (NUM_KEYS * SHARED + head) * HEAD_DIM
        newest = Newest(key, key + NUM_KEYS * HEAD_DIM, keys + place, values + place, (slot % BLOCK_SIZE).to(tl.int32))
        angle = tl.full((1,), position * HEAD_DIM, tl.int64)
        weighted, highest, total = _with_newest(
            weighted, highest, total, taken, Turned(key_weight, epsilon, cosines + angle, sines + angle), newest, scale,
            HEAD_DIM, BLOCK_SIZE, PER_WORD, HAS_NORM, PAIRS,
        )  # fmt: skip

    members = (row * NUM_KEYS + head) * SHARED + members
    if has_one & (beyond - first_split > 1):
        places = members.to(tl.int64) * tl.num_programs(2)
        store_split(parts, sums, places + split, is_there, weighted, highest, total, HEAD_DIM)
        if is_last(counters, row * NUM_KEYS + head, beyond - first_split):
            add_splits(output, members, parts, sums, places, is_there, first_split, beyond, HEAD_DIM)
    else:
        store_rows(output, weighted / tl.where(is_there, total, 1.0)[:, None], members, is_there, HEAD_DIM)


def serves(kv: PagedKV, rows: DeviceRows) -> bool:
    return STORING_ANSWERS.is_on and rows.are_answers and kv.kind in _STORED


@attention_answers.implement("triton")
def attend_answers(
    heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows, window: int | None
) -> Tensor:
    scale, shared = form.head_dim**-0.5, form.num_queries // form.num_keys
    output = heads.new_empty(len(heads), form.num_queries, form.head_dim)
    tiles = tiles_of_few(kv.kind, triton.next_power_of_2(shared), 1, rows, kv.num_heads)
    choice = choice_of_few(output, kv, scale, tiles)
    if rows.num_rows * kv.num_heads > MOST:
        tiles = tiles.unsplit()
    num_splits = tiles.num_splits(rows)
    places = (rows.num_rows if num_splits > 1 else 0, form.num_queries, num_splits)
    parts = heads.new_empty((*places, form.head_dim), dtype=torch.float32)
    sums = heads.new_empty((*places, 2), dtype=torch.float32)
    stored, read = ([memory.view(of[kv.kind]) for memory in (kv.keys, kv.values)] for of in (_STORED, _READ))
    answer_kernel[rows.num_rows, form.num_keys, num_splits](
        heads, output, parts, sums, counters(heads.device), *(form.norms or (heads, heads)), rotation.cos, rotation.sin,
        rows.kv_slots, rows.context_lengths, rows.block_tables, *stored, *read, rows.block_tables.shape[1],
        read[0].stride(0), tiles.splits_at_most, tiles.split, window or 0, scale * LOG2_E, form.epsilon, tiles.group,
        shared, form.num_keys, choice["KEYS"], form.head_dim, kv.block_size, kv.kind, KV_FORMATS[kv.kind].per_unit,
        form.norms is not None, form.rotates_pairs, num_warps=choice.num_warps, num_stages=choice.num_stages,
    )  # fmt: skip
    return output


def examples() -> Iterator[Example]:
    floats = dict.fromkeys(("parts", "sums", "query_weight", "key_weight", "cosines", "sines"), "*fp32")
    lists = dict.fromkeys(("counters", "context_lengths", "block_tables"), "*i32") | {"slots": "*i64"}
    numbers = {"scale": "fp32", "epsilon": "fp32"} | dict.fromkeys((*_COUNTS, "stride"), "i32")
    for kind, head_dim in (("bf16", 128), ("fp16", 64), ("bf16", 256)):
        read = "*i32" if kind == "bf16" else f"*{kind}"
        states = dict.fromkeys(("heads", "output", "keys", "values"), f"*{kind}")
        types = states | floats | lists | dict.fromkeys(("key_words", "value_words"), read) | numbers
        choice = FEW[kind].default(90, (head_dim, 16))
        constants = dict(
            GROUP=16, SHARED=4, NUM_KEYS=8, KEYS=choice["KEYS"], HEAD_DIM=head_dim, BLOCK_SIZE=16, KIND=kind,
            PER_WORD=KV_FORMATS[kind].per_unit, HAS_NORM=True, PAIRS=False,
        )  # fmt: skip
        aligned = (*(name for name, of in types.items() if of.startswith("*")), "stride")
        yield Example(
            f"answers {kind} {head_dim}", answer_kernel, types, constants, choice.num_warps, choice.num_stages, aligned
        )
