"""Bytes taken apart into their lower and upper halves, less their zeros, as 16-bit floats: two in one instruction.

The four bytes of a register are masked together. Each is put below a byte that makes it a whole number from 128 on as
bfloat16, from 1024 on as float16; one packed multiply-add takes off what is too much, and the zero with it. All of that
is exact. An upper half is left where it is if the format has room for it there: 16 times as large, until it is
multiplied.
"""

import triton
import triton.language as tl

# A half of four bytes: $0, $1 two numbers each, of the bytes $2, plus the offsets $3, $4.
_ASSEMBLY = """{{
.reg .b32 halves, first, second, factor;
shr.b32 halves, $2, {shift};
and.b32 halves, halves, {mask};
prmt.b32 first, halves, {above}, 0x4140;
prmt.b32 second, halves, {above}, 0x4342;
mov.b32 factor, {factor};
fma.rn.{type}x2 $0, first, factor, $3;
fma.rn.{type}x2 $1, second, factor, $4;
}}"""
_BF16 = {"type": "bf16", "above": "0x43434343", "factor": "0x3f803f80", "mask": "0x0f0f0f0f"}
_FP16 = {"type": "f16", "above": "0x64646464"}
LOWER_BF16 = tl.constexpr(_ASSEMBLY.format(shift=0, **_BF16))
UPPER_BF16 = tl.constexpr(_ASSEMBLY.format(shift=4, **_BF16))
LOWER_FP16 = tl.constexpr(_ASSEMBLY.format(shift=0, mask="0x0f0f0f0f", factor="0x3c003c00", **_FP16))
UPPER_FP16 = tl.constexpr(_ASSEMBLY.format(shift=0, mask="0xf0f0f0f0", factor="0x2c002c00", **_FP16))
_CONSTRAINTS = tl.constexpr("=&r,=&r,r,r,r")


@triton.jit
def packed_halves(octets, lower_zeros, upper_zeros, met_type: tl.constexpr):
    """The lower and the upper halves of bytes less their zeros, which are floats of the same rank, as `met_type`."""
    if met_type == tl.bfloat16:
        lower = _half(octets, -128.0 - lower_zeros, LOWER_BF16, met_type)
        upper = _half(octets, -128.0 - upper_zeros, UPPER_BF16, met_type)
    else:
        lower = _half(octets, -1024.0 - lower_zeros, LOWER_FP16, met_type)
        upper = _half(octets, -64.0 - upper_zeros, UPPER_FP16, met_type)
    return lower, upper


@triton.jit
def _half(octets, offsets, ASSEMBLY: tl.constexpr, met_type: tl.constexpr):
    offsets = tl.broadcast_to(offsets.to(met_type), octets.shape)
    return tl.inline_asm_elementwise(ASSEMBLY, _CONSTRAINTS, [octets, offsets], offsets.dtype, is_pure=True, pack=4)
