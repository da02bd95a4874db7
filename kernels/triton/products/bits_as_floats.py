"""Bits of a word as floats without any arithmetic, where a product makes up for their size.

A float whose exponent is 0 or 1 is its bits, as a whole number, × 2^-149. So bits that are masked out of a word where
they stand, below its highest 8, are the number that they write × a power of two, exactly; GPUs multiply such numbers as
fast as others. What they meet is enlarged by as much, up to the same power for all. Knows nothing of what the bits are.
"""

import triton
import triton.language as tl

# Powers of two. What is met may be as large as 2^47; a product counts in full if it is no less than 2^-57.
_ENLARGED, _SMALLEST = 80, -149
FACTOR = tl.constexpr(2.0 ** (_ENLARGED + _SMALLEST))  # of all products


@triton.constexpr_function
def place_of(first: int) -> int:
    """Where bits stand that are numbered from `first` on in their word: the highest 8 are moved down."""
    return first if first < 24 else first - 8


@triton.constexpr_function
def power_of(first: int) -> int:
    """Of two, by which is enlarged what meets the bits from `first` on."""
    return _ENLARGED - place_of(first)


@triton.jit
def bits_as_float(words, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """COUNT bits of int32, those from number FIRST on, none of them across number 24."""
    mask: tl.constexpr = ((1 << COUNT) - 1) << place_of(FIRST)
    return (words >> FIRST - place_of(FIRST) & mask).to(tl.float32, bitcast=True)


@triton.jit
def enlarged(x, FIRST: tl.constexpr):
    """What meets the bits from number FIRST on."""
    return x * (2.0 ** power_of(FIRST))
