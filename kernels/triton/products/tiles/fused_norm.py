"""The norm of rows that a product computes on its way: weighed while they are read, divided when the sums are done.

The product uses x times the norm's weight; the squares of x are summed along with it, and
1 / sqrt(mean square + ε) is a factor of the finished sums. So a row is rounded to the matrix units' format once.
"""

import triton
import triton.language as tl

# What meets the weights is made smaller, and the sums larger again, that a large number of the stream times a large
# weight of the norm stays within float16.
SMALLER, _LARGER = tl.constexpr(0.0625), tl.constexpr(16.0)


@triton.jit
def factors_of(norm_weight, start, num_inputs, LENGTH: tl.constexpr):
    """The norm's weight of a run of inputs: [1, LENGTH]."""
    inputs = start + tl.arange(0, LENGTH)[None, :]
    return tl.load(norm_weight + inputs, mask=inputs < num_inputs, other=0)


@triton.jit
def weighed(x_tile, factors, squares):
    """A tile of rows with its factors, and the squares so far with this tile's."""
    numbers = x_tile.to(tl.float32)
    return numbers * (factors.to(tl.float32) * SMALLER), tl.fma(numbers, numbers, squares)


@triton.jit
def row_factors(squares, num_inputs, epsilon):
    """What the rows' finished sums are multiplied with."""
    return tl.rsqrt(squares / num_inputs + epsilon) * _LARGER
