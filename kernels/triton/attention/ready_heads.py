"""Prepares query and key heads for attention: norms and rotates them."""

from typing import NamedTuple

import triton
import triton.language as tl


class HeadTransform(NamedTuple):
    """What makes a query or key head ready: a norm's weight, and each token's cosines and sines."""

    weight: tl.tensor
    epsilon: tl.tensor
    cosines: tl.tensor  # pointers, one a token
    sines: tl.tensor


@triton.jit
def ready(
    heads, is_there, columns, turned, HEAD_DIM: tl.constexpr, HAS_NORM: tl.constexpr, PAIRS: tl.constexpr,
    ROTATED: tl.constexpr,
):  # fmt: skip
    """Some columns of each token's head, normed and rotated, in float32. Sines are 0 behind the first ROTATED; of 0
    there are none."""
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
