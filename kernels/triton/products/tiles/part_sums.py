"""Sums over a part of the inputs, of weights of a byte or more each: floats, 8-bit integers, also on both sides.

Tiles of weights and rows meet in the weight's format if that is a float, else in that of the rows. What the results are
multiplied with (scales of 8-bit values) waits until the sums are complete.
"""

import triton
import triton.language as tl

from .fused_norm import factors_of, weighed
from .tiles import met


@triton.jit
def sum_of_part(
    x_rows, weight_lines, norm_weight, part, num_inputs, sums, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
    IS_EVEN: tl.constexpr, met_type: tl.constexpr,
):  # fmt: skip
    """[lines, rows] over a part of the inputs, beginning with zeros as `sums`; of normed rows [1, rows] squares too."""
    length = tl.cdiv(tl.cdiv(num_inputs, BLOCK_K), PARTS) * BLOCK_K
    squares = tl.zeros((x_rows.shape[0], BLOCK_K if norm_weight is not None else 1), tl.float32)
    if norm_weight is not None:
        # Read a tile ahead: what is as narrow as factors passes no shared memory, and would be waited for.
        factors = factors_of(norm_weight, part * length, num_inputs, BLOCK_K)
    for start in range(part * length, tl.minimum((part + 1) * length, num_inputs), BLOCK_K):
        inputs = start + tl.arange(0, BLOCK_K)[None, :]
        if IS_EVEN:
            weight_tile, x_tile = tl.load(weight_lines[:, None] + inputs), tl.load(x_rows[:, None] + inputs)
        else:
            is_input = inputs < num_inputs
            weight_tile = tl.load(weight_lines[:, None] + inputs, mask=is_input, other=0)
            x_tile = tl.load(x_rows[:, None] + inputs, mask=is_input, other=0)
        if norm_weight is not None:
            ahead = factors_of(norm_weight, start + BLOCK_K, num_inputs, BLOCK_K)
            x_tile, squares = weighed(x_tile, factors, squares)
            factors = ahead
        weight_tile, x_tile = met(weight_tile, met_type), tl.trans(met(x_tile, met_type))
        sums = tl.dot(weight_tile, x_tile, sums, input_precision="ieee", out_dtype=sums.dtype)
    return sums, tl.sum(squares, 1)[None, :]
