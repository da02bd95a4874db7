"""Packed keys and values inside a kernel: words as they lie in memory, and the numbers in them.

A word holds the numbers of `kv_layout.KV_FORMATS` that lie together: along a head for keys, along the tokens for
values. A product over such numbers is the sum of one product for each place in the word, so a tile of words is never
rearranged: the other factor is taken apart by `in_parts`. Of a branch on a constant one side is compiled, if nothing
follows it but one `return`. Knows nothing of blocks or attention.
"""

import triton
import triton.language as tl

from . import is_interpreted

UINT4_ZERO = tl.constexpr(16.0)
_NIBBLE, _SIXTEEN = tl.constexpr(0x0078), tl.constexpr(0x4180)
_IS_INTERPRETED = tl.constexpr(is_interpreted())
_TOP_BITS = tl.constexpr(-2139062144)  # 0x80808080
# 1.5 × 2^23: adding it rounds to whole numbers, to even at a tie, and leaves them in the lowest bits.
_WHOLE_IN_FLOAT = tl.constexpr(12582912.0)


@triton.jit
def numbers(words, PLACE: tl.constexpr, KIND: tl.constexpr):
    """The numbers at one place of each word, in uint4 UINT4_ZERO too high; int8's are signed, as values are kept."""
    if KIND == "bf16":
        found = (words >> 16 * PLACE).to(tl.int16).to(tl.bfloat16, bitcast=True)
    elif KIND == "int8":
        found = (words << 24 - 8 * PLACE >> 24).to(tl.float32).to(tl.bfloat16)
    elif KIND == "uint4":
        # Of a byte the low nibble is one of the word's first four numbers, the high one of its last four.
        found = _nibbles((words >> PLACE % 4 // 2 * 16).to(tl.int16), PLACE % 2 * 8 + PLACE // 4 * 4)
    else:
        found = words
    return found


@triton.jit
def _nibbles(halves, FIRST: tl.constexpr):
    """The numbers in four bits of each half of a word, from bit FIRST on: in bits 3-6 of a bfloat16 from 16 on.

    Two neighbours are moved, cut out and made bfloat16 at once, by two instructions where the compiler takes four.
    """
    if _IS_INTERPRETED:
        bits = halves.to(tl.int32) << 3 >> FIRST & _NIBBLE | _SIXTEEN
        found = bits.to(tl.int16).to(tl.bfloat16, bitcast=True)
    elif FIRST == 0:
        found = _moved_pairs("shl.b32 moved, $1, 3;", halves)
    elif FIRST == 4:
        found = _moved_pairs("shr.u32 moved, $1, 1;", halves)
    elif FIRST == 8:
        found = _moved_pairs("shr.u32 moved, $1, 5;", halves)
    else:
        found = _moved_pairs("shr.u32 moved, $1, 9;", halves)
    return found


@triton.jit
def _moved_pairs(MOVE: tl.constexpr, halves):
    ASM: tl.constexpr = "{ .reg .b32 moved; " + MOVE + " lop3.b32 $0, moved, 0x00780078, 0x41804180, 0xEA; }"
    return tl.inline_asm_elementwise(ASM, "=r,r", [halves], dtype=tl.bfloat16, is_pure=True, pack=2)


@triton.jit
def signed_keys(words, KIND: tl.constexpr):
    """int8's keys, which are kept 128 too high, as values are kept: the top bit of each byte turned."""
    return words ^ _TOP_BITS if KIND == "int8" else words


@triton.jit
def halves(pairs):
    """float32 [2 n] from n words of two float16 each."""
    low = pairs.to(tl.int16).to(tl.float16, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.reshape(tl.join(low, high), (2 * pairs.shape[0],)).to(tl.float32)


@triton.jit
def in_parts(x, PARTS: tl.constexpr):
    """[rows, n] as PARTS tiles [rows, n / PARTS]; tile i has every column whose number is i modulo PARTS."""
    parts = (x,)
    if PARTS > 1:
        even, odd = tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
        even_parts, odd_parts = in_parts(even, PARTS // 2), in_parts(odd, PARTS // 2)
        parts = (even_parts[0], odd_parts[0])
        for place in tl.static_range(1, PARTS // 2):
            parts = parts + (even_parts[place], odd_parts[place])
    return parts


@triton.jit
def in_one(parts, PARTS: tl.constexpr):
    """[rows, PARTS × n] of PARTS tiles [rows, n]: what `in_parts` was given."""
    whole = parts[0]
    if PARTS > 1:
        pairs = (tl.interleave(parts[0], parts[PARTS // 2]),)
        for place in tl.static_range(1, PARTS // 2):
            pairs = pairs + (tl.interleave(parts[place], parts[place + PARTS // 2]),)
        whole = in_one(pairs, PARTS // 2)
    return whole


@triton.jit
def rounded_up(x):
    """The smallest float16 that is not below; NaN stays."""
    nearest = x.to(tl.float16)
    bits = nearest.to(tl.int16, bitcast=True)
    above = (bits + tl.where(bits >= 0, 1, -1)).to(tl.int16).to(tl.float16, bitcast=True)
    return tl.where(nearest.to(tl.float32) < x, above, nearest)


@triton.jit
def rounded_down(x):
    """The largest float16 that is not above; NaN stays."""
    return -rounded_up(-x)


@triton.jit
def bytes_of(x, scale, LEAST: tl.constexpr, MOST: tl.constexpr):
    """x / scale as whole numbers, to the nearest even, in the lowest byte of int32; 0 where the scale is no number."""
    is_scaled = (scale > 0)[:, None]
    divisor = tl.where(is_scaled, scale.to(tl.float32)[:, None], 1.0)
    inverse = tl.div_rn(tl.zeros_like(divisor) + 1, divisor)
    whole = tl.where(is_scaled, tl.minimum(tl.maximum(x * inverse, LEAST), MOST), 0.0)
    return (whole + _WHOLE_IN_FLOAT).to(tl.int32, bitcast=True) & 255
