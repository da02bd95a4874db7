"""Sums over a part of the inputs, of 4-bit weights in groups; the rows stay as they come.

A tile of bytes holds two runs of neighbouring inputs (weights.py): its halves are taken apart in registers, centred on
their zeros, which is exact in every format, and meet the rows' two runs. The sums of a group are scaled as they are
added up, so that no weight is rounded to the rows' format.
"""

import triton
import triton.language as tl

from ....stored.quantized import MIDDLE
from .tiles import factors_of, met, met_halves, weighed

_MIDDLE = tl.constexpr(MIDDLE)


@triton.jit
def _loaded(x_rows, start, num_inputs, HALF: tl.constexpr, IS_EVEN: tl.constexpr):
    """A run of the rows' inputs [rows, HALF]."""
    inputs = start + tl.arange(0, HALF)[None, :]
    if IS_EVEN:
        x_tile = tl.load(x_rows[:, None] + inputs)
    else:
        x_tile = tl.load(x_rows[:, None] + inputs, mask=inputs < num_inputs, other=0)
    return x_tile


@triton.jit
def _scales_of(scales, block, GROUP: tl.constexpr, HALF: tl.constexpr):
    """The scales of a block's lower and upper half, for all outputs."""
    lower = tl.load(scales + block * 2 * HALF // GROUP)
    upper = lower if GROUP % (2 * HALF) == 0 else tl.load(scales + (block * 2 * HALF + HALF) // GROUP)
    return lower, upper


@triton.jit
def _factors_of(norm_weight, block, num_inputs, HALF: tl.constexpr):
    """The same, of a norm."""
    start = block * 2 * HALF
    lower = factors_of(norm_weight, start, num_inputs, HALF)
    return lower, factors_of(norm_weight, start + HALF, num_inputs, HALF)


@triton.jit
def _zeros_of(zeros, start, like, GROUP: tl.constexpr):
    """The zeros of the run of inputs that begins at `start`: [outputs, 1]."""
    if zeros is None:
        found = tl.full((like.shape[0], 1), _MIDDLE, tl.float32)
    else:
        found = tl.load(zeros + start // GROUP).to(tl.float32)[:, None]
    return found


@triton.jit
def _plus_scaled(product, scales, sums):
    return tl.fma(product, tl.broadcast_to(scales.to(tl.float32)[:, None], sums.shape), sums)


@triton.jit
def sum_of_int4_part(
    x_rows, weight, lines, norm_weight, part, num_inputs, sums, FORM: tl.constexpr, PARTS: tl.constexpr,
    IS_EVEN: tl.constexpr, met_type: tl.constexpr,
):  # fmt: skip
    """[lines, rows] over a part of the inputs, beginning with zeros as `sums`; of normed rows [1, rows] squares too."""
    GROUP: tl.constexpr = FORM.group
    HALF: tl.constexpr = FORM.half
    blocks = tl.cdiv(num_inputs, 2 * HALF)
    length, groups = tl.cdiv(blocks, PARTS), tl.cdiv(blocks * 2 * HALF, GROUP)
    octet_lines, scales = weight.numbers + lines * (blocks * HALF), weight.scales + lines * groups
    zeros = None if weight.zeros is None else weight.zeros + lines * groups
    nothing = tl.zeros_like(sums)
    squares = tl.zeros((x_rows.shape[0], HALF if norm_weight is not None else 1), tl.float32)
    # Read a block ahead: what is as narrow as scales passes no shared memory, and would be waited for.
    lower_scales, upper_scales = _scales_of(scales, tl.minimum(part * length, blocks - 1), GROUP, HALF)
    if norm_weight is not None:
        lower_factors, upper_factors = _factors_of(norm_weight, part * length, num_inputs, HALF)
    for block in range(part * length, tl.minimum((part + 1) * length, blocks)):
        ahead = _scales_of(scales, tl.minimum(block + 1, blocks - 1), GROUP, HALF)
        start = block * 2 * HALF
        octets = tl.load(octet_lines[:, None] + block * HALF + tl.arange(0, HALF)[None, :])
        lower_x = _loaded(x_rows, start, num_inputs, HALF, IS_EVEN)
        upper_x = _loaded(x_rows, start + HALF, num_inputs, HALF, IS_EVEN)
        if norm_weight is not None:
            factors_ahead = _factors_of(norm_weight, block + 1, num_inputs, HALF)
            lower_x, squares = weighed(lower_x, lower_factors, squares)
            upper_x, squares = weighed(upper_x, upper_factors, squares)
            lower_factors, upper_factors = factors_ahead
        lower_x, upper_x = tl.trans(met(lower_x, met_type)), tl.trans(met(upper_x, met_type))
        lower_zeros = _zeros_of(zeros, start, sums, GROUP)
        upper_zeros = lower_zeros if GROUP % (2 * HALF) == 0 else _zeros_of(zeros, start + HALF, sums, GROUP)
        lower_weight, upper_weight = met_halves(octets, lower_zeros, upper_zeros, met_type)
        product = tl.dot(lower_weight, lower_x, nothing, input_precision="ieee")
        if GROUP % (2 * HALF) == 0:
            product = tl.dot(upper_weight, upper_x, product, input_precision="ieee")
            sums = _plus_scaled(product, lower_scales, sums)
        else:
            sums = _plus_scaled(product, lower_scales, sums)
            product = tl.dot(upper_weight, upper_x, nothing, input_precision="ieee")
            sums = _plus_scaled(product, upper_scales, sums)
        lower_scales, upper_scales = ahead
    return sums, tl.sum(squares, 1)[None, :]
