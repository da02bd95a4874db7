"""Integers of a few bits as floats without any arithmetic, where a product makes up for their size.

A float whose exponent is 0 or 1 is its bits, as a whole number, × 2^-149. So bits that are masked out of a word where
they stand, below the highest 8, are the number that they write × a power of two, exactly; GPUs multiply such numbers as
fast as others. What they meet is enlarged by as much, up to the same power for all. Knows nothing of what the bits are.
"""

import triton
import triton.language as tl

# Powers of two. What is met may be as large as 2^47, and adds to a sum even where a product is only 2^-57.
_ENLARGED = tl.constexpr(80)
FACTOR = tl.constexpr(2.0 ** (80 - 149))  # of all products
_FRACTION_END = tl.constexpr(24)  # the first bit that is worth more than the one below it, twice


@triton.jit
def bits_as_float(words, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """Bits of int32, those from number FIRST on; from 24 on they are moved down by 8."""
    down: tl.constexpr = 0 if FIRST < _FRACTION_END else 8
    mask: tl.constexpr = ((1 << COUNT) - 1) << (FIRST - down)
    return (words >> down & mask).to(tl.float32, bitcast=True)


@triton.jit
def enlarged(x, FIRST: tl.constexpr):
    """What meets the bits from FIRST on."""
    power: tl.constexpr = _ENLARGED - (FIRST if FIRST < _FRACTION_END else FIRST - 8)
    return x * (2.0**power)
