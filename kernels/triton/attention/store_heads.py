"""Norms and rotates projected heads, and stores keys and values in their slots, in one launch; returns the queries.

A program computes one head of some neighbouring tokens. Scales of 8-bit numbers are rounded up to float16, and the
numbers to nearest, ties to even, as on a CPU.
"""

from functools import partial
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ...operands import HeadLayout
from ...paged import DeviceRows, PagedKV, Rotation
from ...reference.paged_attention import store_heads_paged
from ..launch.dependent import dependent, wait_for_previous
from ..launch.tuning import Key, LaunchConfig, Tuning

# 1.5 × 2^23: adding it rounds to whole numbers, to even at a tie.
_TO_WHOLE = tl.constexpr(12582912.0)


class HeadTransform(NamedTuple):
    """What makes a query or key head ready: a norm's weight, and each token's cosines and sines."""

    weight: tl.tensor
    epsilon: tl.tensor
    cosines: tl.tensor  # pointers, one for each token
    sines: tl.tensor


@triton.jit
def ready(
    heads, is_there, columns, turned, HEAD_DIM: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
    ROTATED: tl.constexpr,
):  # fmt: skip
    """Load some columns of each token's head, normed and rotated, in float32. Sines are 0 after the first ROTATED
    columns; ROTATED = 0 means that nothing is rotated."""
    partners = columns ^ 1 if PAIRS or ROTATED == 0 else (columns + ROTATED // 2) % ROTATED
    is_column = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    x = tl.load(heads[:, None] + columns[None, :], mask=is_column, other=0).to(tl.float32)
    y = tl.load(heads[:, None] + partners[None, :], mask=is_column, other=0).to(tl.float32)
    if HAS_NORM:
        every = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
        is_any = is_there[:, None] & (every < HEAD_DIM)[None, :]
        whole = tl.load(heads[:, None] + every[None, :], mask=is_any, other=0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(whole * whole, 1) / HEAD_DIM + turned.epsilon)[:, None]
        x *= scale * tl.load(turned.weight + columns, mask=columns < HEAD_DIM, other=0).to(tl.float32)[None, :]
        y *= scale * tl.load(turned.weight + partners, mask=columns < HEAD_DIM, other=0).to(tl.float32)[None, :]
    if ROTATED:
        cosines = tl.load(turned.cosines[:, None] + columns[None, :], mask=is_column, other=0)
        sines = tl.load(turned.sines[:, None] + columns[None, :], mask=is_column, other=0)
        x = y * sines + x * cosines
    return x


@triton.jit
def _store(x, to, scales, offsets, is_stored, HEAD_DIM: tl.constexpr):
    """Store a head of each token, [tokens, columns]; `offsets` count heads."""
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_number = is_stored[:, None] & (columns < HEAD_DIM)[None, :]
    if to.dtype.element_ty == tl.int8:
        poison = tl.sum(x * 0, 1)  # NaN where anything is not finite, which the scale alone can say
        scale = _rounded_up(tl.div_rn(tl.max(tl.abs(x), 1) + poison, tl.zeros_like(poison) + 127))
        tl.store(scales + offsets, scale, mask=is_stored)
        x = _whole(x, scale)
    tl.store(to + offsets[:, None] * HEAD_DIM + columns[None, :], x.to(to.dtype.element_ty), mask=is_number)


@triton.jit
def _rounded_up(x):
    """Return the smallest float16 that is not below x; NaN stays NaN."""
    nearest = x.to(tl.float16)
    bits = nearest.to(tl.int16, bitcast=True)
    above = (bits + tl.where(bits >= 0, 1, -1)).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.where(nearest.to(tl.float32) < x, above, nearest)


@triton.jit
def _whole(x, scale):
    """Round x / scale to whole numbers from -127 to 127; 0 where the scale is 0 or NaN."""
    is_scaled = (scale > 0)[:, None]
    divisor = tl.where(is_scaled, scale.to(tl.float32)[:, None], 1.0)
    inverse = tl.div_rn(tl.zeros_like(divisor) + 1, divisor)
    return tl.where(is_scaled, tl.minimum(tl.maximum(x * inverse, -127.0), 127.0), 0.0) + _TO_WHOLE - _TO_WHOLE


@triton.jit(do_not_specialize=["num_tokens"])
def store_heads_kernel(
    heads, query, query_weight, key_weight, cosines, sines, positions, query_scales, slots, keys, values, key_scales,
    value_scales, num_tokens, epsilon, TOKENS: tl.constexpr, NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr, ROTATED: tl.constexpr,
    QUERY_STEP: tl.constexpr, SCALES_QUERIES: tl.constexpr, IS_DEPENDENT: tl.constexpr = False,
):  # fmt: skip
    """A program: one head of TOKENS tokens, a query's, a key's or a value's. Queries stand QUERY_STEP heads apart."""
    wait_for_previous(IS_DEPENDENT)
    head, columns = tl.program_id(1), tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_there = tokens < num_tokens
    place = head + tl.minimum(head, NUM_QUERIES) * (QUERY_STEP - 1)
    own = heads + tokens.to(tl.int64) * ((NUM_QUERIES * QUERY_STEP + 2 * NUM_KEYS) * HEAD_DIM) + place * HEAD_DIM
    angles = tl.load(positions + tokens, mask=is_there, other=0).to(tl.int64) * HEAD_DIM
    is_number = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    if head < NUM_QUERIES:
        turned = HeadTransform(query_weight, epsilon, cosines + angles, sines + angles)
        turned_query = ready(own, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS, ROTATED)
        if SCALES_QUERIES:
            own_positions = tl.load(positions + tokens, mask=is_there, other=0)
            turned_query *= tl.load(query_scales + own_positions, mask=is_there, other=0)[:, None]
        to = query + (tokens.to(tl.int64) * NUM_QUERIES + head) * HEAD_DIM
        tl.store(to[:, None] + columns[None, :], turned_query.to(query.dtype.element_ty), mask=is_number)
        return
    slot = tl.load(slots + tokens, mask=is_there, other=-1)
    offsets = slot * NUM_KEYS + (head - NUM_QUERIES) % NUM_KEYS
    if head < NUM_QUERIES + NUM_KEYS:
        turned = HeadTransform(key_weight, epsilon, cosines + angles, sines + angles)
        key = ready(own, is_there, columns, turned, HEAD_DIM, HAS_NORM, PAIRS, ROTATED)
        _store(key, keys, key_scales, offsets, slot >= 0, HEAD_DIM)
    else:
        value = tl.load(own[:, None] + columns[None, :], mask=is_number, other=0).to(tl.float32)
        _store(value, values, value_scales, offsets, slot >= 0, HEAD_DIM)


def _default(architecture: int, key: Key) -> LaunchConfig:
    """As many tokens as leave each thread a few numbers."""
    return LaunchConfig.of(4, TOKENS=8) if architecture else LaunchConfig.of(TOKENS=32)


TUNING = Tuning(
    "store_heads",
    _default,
    [LaunchConfig.of(warps, TOKENS=tokens) for warps, tokens in ((4, 8), (4, 16), (2, 4), (1, 1))],
)


@store_heads_paged.implement("triton")
def store_heads(heads: Tensor, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows) -> Tensor:
    launch = partial(_launch, heads, layout, rotation, kv, rows)
    key = (triton.next_power_of_2(len(heads)), layout.num_queries + 2 * layout.num_keys, layout.head_dim)
    return launch(TUNING.choice(key, launch))


def _launch(
    heads: Tensor, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows, choice: LaunchConfig
) -> Tensor:
    query = heads.new_empty(len(heads), layout.num_queries, layout.head_dim)
    weights = layout.norms or (heads, heads)
    # Without a rotation the kernel reads none of these.
    turning = rotation or Rotation(heads, heads, rows.kv_slots)
    scales_queries = turning.query_scales is not None
    scales = (kv.key_scales, kv.value_scales) if kv.key_scales is not None else (kv.keys, kv.values)
    store_heads_kernel[triton.cdiv(len(heads), choice["TOKENS"]), layout.num_queries + 2 * layout.num_keys](
        heads, query, *weights, *turning[:3], turning.query_scales if scales_queries else heads, rows.kv_slots,
        kv.keys, kv.values, *scales, len(heads), layout.epsilon,
        choice["TOKENS"], layout.num_queries, layout.num_keys, layout.head_dim,
        layout.norms is not None, layout.rotates_pairs, 0 if rotation is None else layout.num_rotated,
        1 + layout.is_gated, scales_queries,
        num_warps=choice.num_warps, **dependent(),
    )  # fmt: skip
    return query
