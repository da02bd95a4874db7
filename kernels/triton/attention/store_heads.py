"""From projected heads to queries that are ready to attend, with keys and values in their slots, in one launch.

A program takes one head of some neighbouring tokens. Of integer formats it stores what cpu/source/store_heads.cpp
would, bit for bit: scales rounded up to float16, minima down, numbers to the nearest even. Two tokens of a value in
uint4 share bytes; where a step holds both, the one with the low half writes for both.
Knows nothing of who owns a block.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...heads import HeadForm
from ...kv_layout import KV_FORMATS
from ...paged import DeviceRows, PagedKV, Rotation
from ...reference.store_heads import store_heads_paged
from ..compiled import Example
from ..packed_numbers import bytes_of, rounded_down, rounded_up
from ..tuning import Choice, Key, Tuning
from .ready_heads import Turned, ready

# How numbers are written: whole, except uint4's.
_NUMBERS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Place(NamedTuple):
    """Where tokens go in the memory of one head."""

    numbers: tl.tensor  # pointers, one a token, to their block
    scales: tl.tensor  # the same, to their own scale
    offsets: tl.tensor  # in the block
    is_stored: tl.tensor


@triton.jit
def _store_key(
    heads, is_there, turned, place, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr,
    PER_WORD: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    if KIND == "uint4":
        half: tl.constexpr = triton.next_power_of_2(HEAD_DIM) // 2
        own = tl.arange(0, half)
        columns = own // 4 * 8 + own % 4  # the low nibbles'; the high ones' are 4 further
        low = ready(heads, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS)
        high = ready(heads, is_there, columns + 4, turned, HEAD_DIM, HAS_NORM, PAIRS)
        is_column = (own < HEAD_DIM // 2)[None, :]
        least = tl.minimum(_least(low, is_column), _least(high, is_column))
        most = tl.maximum(-_least(-low, is_column), -_least(-high, is_column))
        scale, minimum = _uint4_range(least, most, tl.sum(low * 0, 1) + tl.sum(high * 0, 1))
        low, high = _uint4_bytes(low, scale, minimum), _uint4_bytes(high, scale, minimum)
        places = own[None, :] // 4 * (4 * BLOCK_SIZE) + place.offsets[:, None] * 4 + own[None, :] % 4
        tl.store(place.numbers[:, None] + places, low | high << 4, mask=place.is_stored[:, None] & is_column)
        tl.store(place.scales, scale, mask=place.is_stored)
        tl.store(place.scales + BLOCK_SIZE, minimum, mask=place.is_stored)
    else:
        columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
        key = ready(heads, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS)
        places = (columns[None, :] // PER_WORD * BLOCK_SIZE + place.offsets[:, None]) * PER_WORD
        places += columns[None, :] % PER_WORD
        is_stored = place.is_stored[:, None] & (columns < HEAD_DIM)[None, :]
        _store_numbers(key, places, is_stored, place, 128, KIND)


@triton.jit
def _store_value(
    heads, is_there, place, slots, tokens, num_tokens, row_length, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr, PER_WORD: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_column = (columns < HEAD_DIM)[None, :]
    is_stored = place.is_stored[:, None] & is_column
    pointers = heads[:, None] + columns[None, :]
    value = tl.load(pointers, mask=is_there[:, None] & is_column, other=0).to(tl.float32)
    if KIND == "uint4":
        scale, minimum = _uint4_scales(value, is_column)
        tl.store(place.scales, scale, mask=place.is_stored)
        tl.store(place.scales + BLOCK_SIZE, minimum, mask=place.is_stored)
        own = _uint4_bytes(value, scale, minimum)

        # The other half of a byte is that of the token 4 before or after, which this step may bring as well.
        is_low = place.offsets % 8 < 4
        other = tokens + tl.where(is_low, 4, -4)
        here = tl.load(slots + tokens, mask=is_there, other=-1)
        there = tl.load(slots + other, mask=place.is_stored & (other >= 0) & (other < num_tokens), other=-1)
        has_other = there == here + tl.where(is_low, 4, -4)
        is_taken = (has_other & is_low)[:, None] & is_column
        later = tl.load(pointers + 4 * row_length, mask=is_taken, other=0).to(tl.float32)
        scale, minimum = _uint4_scales(later, is_column)
        later = _uint4_bytes(later, scale, minimum)

        places = place.numbers[:, None] + place.offsets[:, None] // 8 * (4 * HEAD_DIM) + place.offsets[:, None] % 4
        places += columns[None, :] * 4
        held = tl.load(places, mask=is_stored & (has_other == 0)[:, None], other=0).to(tl.int32)
        low = tl.where(is_low[:, None], own, held & 15)
        high = tl.where(is_low[:, None], tl.where(has_other[:, None], later, held >> 4 & 15), own)
        tl.store(places, (low | high << 4).to(tl.uint8), mask=is_stored & (is_low | (has_other == 0))[:, None])
    else:
        places = (place.offsets[:, None] // PER_WORD * HEAD_DIM + columns[None, :]) * PER_WORD
        places += place.offsets[:, None] % PER_WORD
        _store_numbers(value, places, is_stored, place, 0, KIND)


@triton.jit
def _store_numbers(x, places, is_stored, place, ZERO: tl.constexpr, KIND: tl.constexpr):
    """Numbers of a byte or more, where nothing is shared; ZERO is added to int8's."""
    pointers = place.numbers[:, None] + places
    if KIND == "int8":
        poison = tl.sum(x * 0, 1)  # NaN where anything is not finite, which the scale alone can say
        scale = rounded_up(tl.div_rn(tl.max(tl.abs(x), 1) + poison, tl.zeros_like(poison) + 127))
        tl.store(place.scales, scale, mask=place.is_stored)
        tl.store(pointers, (bytes_of(x, scale, -127.0, 127.0) + ZERO).to(tl.uint8), mask=is_stored)
    else:
        tl.store(pointers, x.to(place.numbers.dtype.element_ty), mask=is_stored)


@triton.jit
def _least(x, is_column):
    return tl.min(tl.where(is_column, x, float("inf")), 1)


@triton.jit
def _uint4_scales(x, is_column):
    return _uint4_range(_least(x, is_column), -_least(-x, is_column), tl.sum(x * 0, 1))


@triton.jit
def _uint4_range(least, most, poison):
    """Scale and minimum, float16, of numbers from `least` to `most`."""
    minimum = rounded_down(least + poison)
    return rounded_up(tl.div_rn(most + poison - minimum.to(tl.float32), tl.zeros_like(poison) + 15)), minimum


@triton.jit
def _uint4_bytes(x, scale, minimum):
    return bytes_of(x - minimum.to(tl.float32)[:, None], scale, 0.0, 15.0)


@triton.jit(do_not_specialize=["num_tokens"])
def store_heads_kernel(
    heads, query, query_weight, key_weight, cosines, sines, positions, slots, keys, values, key_scales, value_scales,
    num_tokens, epsilon, TOKENS: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
    HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_there = tokens < num_tokens
    row_length: tl.constexpr = (NUM_QUERIES + 2 * NUM_KEYS) * HEAD_DIM
    own = heads + tokens.to(tl.int64) * row_length + head * HEAD_DIM
    angles = tl.load(positions + tokens, mask=is_there, other=0).to(tl.int64) * HEAD_DIM
    if head < NUM_QUERIES:
        columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
        turned = Turned(query_weight, epsilon, cosines + angles, sines + angles)
        turned_query = ready(own, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS)
        to = query + (tokens.to(tl.int64) * NUM_QUERIES + head) * HEAD_DIM
        is_column = is_there[:, None] & (columns < HEAD_DIM)[None, :]
        tl.store(to[:, None] + columns[None, :], turned_query.to(query.dtype.element_ty), mask=is_column)
        return
    slot = tl.load(slots + tokens, mask=is_there, other=-1)
    place_of_head = slot // BLOCK_SIZE * NUM_KEYS + (head - NUM_QUERIES) % NUM_KEYS
    offsets = (slot % BLOCK_SIZE).to(tl.int32)
    to_numbers = place_of_head * (BLOCK_SIZE * HEAD_DIM // 2 if KIND == "uint4" else BLOCK_SIZE * HEAD_DIM)
    to_scales = place_of_head * (2 * BLOCK_SIZE if KIND == "uint4" else BLOCK_SIZE) + offsets
    if head < NUM_QUERIES + NUM_KEYS:
        turned = Turned(key_weight, epsilon, cosines + angles, sines + angles)
        place = Place(keys + to_numbers, key_scales + to_scales, offsets, slot >= 0)
        _store_key(own, is_there, turned, place, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD, HAS_NORM, PAIRS)
    else:
        place = Place(values + to_numbers, value_scales + to_scales, offsets, slot >= 0)
        _store_value(own, is_there, place, slots, tokens, num_tokens, row_length, HEAD_DIM, BLOCK_SIZE, KIND, PER_WORD)


def _default(architecture: int, key: Key) -> Choice:
    """As many tokens as keep a few numbers for each thread."""
    return Choice.of(4, TOKENS=8) if architecture else Choice.of(TOKENS=32)


TUNING = Tuning(
    "store_heads", _default, [Choice.of(warps, TOKENS=tokens) for warps, tokens in ((4, 8), (4, 16), (2, 4), (1, 1))]
)


@store_heads_paged.implement("triton")
def store_heads(heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows) -> Tensor:
    launch = partial(_launch, heads, form, rotation, kv, rows)
    key = (triton.next_power_of_2(len(heads)), form.num_queries + 2 * form.num_keys, form.head_dim)
    return launch(TUNING.choice(key, launch))


def _launch(heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows, choice: Choice) -> Tensor:
    query = heads.new_empty(len(heads), form.num_queries, form.head_dim)
    weights = form.norms or (heads, heads)
    keys, values = (memory.view(_NUMBERS.get(kv.kind, torch.uint8)) for memory in (kv.keys, kv.values))
    scales = (kv.key_scales, kv.value_scales) if kv.key_scales is not None else (keys, values)
    store_heads_kernel[triton.cdiv(len(heads), choice["TOKENS"]), form.num_queries + 2 * form.num_keys](
        heads, query, *weights, rotation.cos, rotation.sin, rotation.positions, rows.kv_slots, keys, values, *scales,
        len(heads), form.epsilon, choice["TOKENS"], form.num_queries, form.num_keys, form.head_dim, kv.block_size,
        kv.kind, KV_FORMATS[kv.kind].per_unit, form.norms is not None, form.rotates_pairs, num_warps=choice.num_warps,
    )  # fmt: skip
    return query


def examples() -> Iterator[Example]:
    names = dict.fromkeys(("query_weight", "key_weight", "cosines", "sines"), "*fp32")
    scales = dict.fromkeys(("key_scales", "value_scales"), "*fp16")
    counts = {"positions": "*i64", "slots": "*i64", "num_tokens": "i32", "epsilon": "fp32"}
    for kind, head_dim in (("bf16", 128), ("int8", 256), ("uint4", 96)):
        number = {"fp32": "*fp32", "fp16": "*fp16", "bf16": "*bf16"}.get(kind, "*u8")
        types = dict.fromkeys(("heads", "query"), "*bf16") | names | counts | dict.fromkeys(("keys", "values"), number)
        constants = dict(
            TOKENS=8, NUM_QUERIES=32, NUM_KEYS=8, HEAD_DIM=head_dim, BLOCK_SIZE=16, KIND=kind,
            PER_WORD=KV_FORMATS[kind].per_unit, HAS_NORM=True, PAIRS=kind == "fp16",
        )  # fmt: skip
        pointers = tuple(name for name, kind_of in types.items() if kind_of.startswith("*"))
        yield Example(f"store_heads {kind} {head_dim}", store_heads_kernel, types | scales, constants, aligned=pointers)
