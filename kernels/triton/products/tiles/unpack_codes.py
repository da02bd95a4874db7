"""Takes codes out of bytes, four bytes of a register at a time, and writes them as floats.

Codes are halves, halves with bits of a plane above them, or what halves stand for.

Halves become 16-bit floats less their zeros, two in one instruction: each is put below a byte that makes it a whole
number from 128 on as bfloat16, from 1024 on as float16; one packed multiply-add takes off what is too much, and the
zero with it. All of that is exact. An upper half is left where it is if the format has room for it there: 16 times as
large, until it is multiplied.

Looked up is in a table of 16 bytes, which lies in four registers. The lower three bits of a half choose among the bytes
of two of them, once among the first two and once among the last two; its fourth bit chooses which of both is right.
"""

import triton
import triton.language as tl

from ... import is_interpreted

_IS_INTERPRETED = tl.constexpr(is_interpreted())
_TWO_TO_23_BITS = tl.constexpr(0x4B000000)  # how the float 2^23 is written
# Of the bytes $2 the lower halves become $0, the upper ones $1. What comes once for each of four bytes, a table's words
# or a shift, is in four registers that are the same.
_HALVES = tl.constexpr("""{
and.b32 $0, $2, 0x0f0f0f0f;
shr.b32 $1, $2, 4;
and.b32 $1, $1, 0x0f0f0f0f;
}""")
_WITH_PLANE = """{{
.reg .b32 high;
and.b32 $0, $2, 0x0f0f0f0f;
shr.b32 high, $3, $4;
shl.b32 high, high, 4;
and.b32 high, high, {mask};
or.b32 $0, $0, high;
shr.b32 $1, $2, 4;
and.b32 $1, $1, 0x0f0f0f0f;
shr.b32 high, $3, $8;
shl.b32 high, high, 4;
and.b32 high, high, {mask};
or.b32 $1, $1, high;
}}"""
_WITH_ONE_BIT = tl.constexpr(_WITH_PLANE.format(mask="0x10101010"))
_WITH_TWO_BITS = tl.constexpr(_WITH_PLANE.format(mask="0x30303030"))
_LOOKED_UP = tl.constexpr("""{
.reg .b32 choice, side, low, high, first, second;
and.b32 choice, $2, 0x77777777;
and.b32 side, $2, 0x88888888;
shr.b32 side, side, 1;
or.b32 side, side, 0x32103210;
prmt.b32 low, $3, $7, choice;
prmt.b32 high, $11, $15, choice;
prmt.b32 first, low, high, side;
shr.b32 choice, choice, 16;
shr.b32 side, side, 16;
prmt.b32 low, $3, $7, choice;
prmt.b32 high, $11, $15, choice;
prmt.b32 second, low, high, side;
prmt.b32 $0, first, second, 0x6420;
prmt.b32 $1, first, second, 0x7531;
}""")
# Each byte of $4 below those of 2^23.
_WRITTEN = tl.constexpr("""{
prmt.b32 $0, $4, 0x4b000000, 0x7440;
prmt.b32 $1, $4, 0x4b000000, 0x7441;
prmt.b32 $2, $4, 0x4b000000, 0x7442;
prmt.b32 $3, $4, 0x4b000000, 0x7443;
}""")
_OF_HALVES, _OF_WRITTEN = tl.constexpr("=&r,=&r,r"), tl.constexpr("=&r,=&r,=&r,=&r,r")
_OF_PLANE = tl.constexpr(",".join(["=&r", "=&r", *["r"] * 10]))
_OF_LOOKED_UP = tl.constexpr(",".join(["=&r", "=&r", *["r"] * 17]))
# A half of four bytes, as floats: $0, $1 two numbers each, of the bytes $2, plus the offsets $3, $4.
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
def halves_of(octets):
    """The lower and the upper halves of bytes, a byte each."""
    if _IS_INTERPRETED:
        lower, upper = octets & 15, octets >> 4
    else:
        lower, upper = packed_halves_of(octets)
    return lower, upper


@triton.jit
def packed_halves_of(octets):
    return tl.inline_asm_elementwise(_HALVES, _OF_HALVES, [octets], (tl.uint8, tl.uint8), is_pure=True, pack=4)


@triton.jit
def halves_with_plane(octets, plane, lower_shift, upper_shift, WIDTH: tl.constexpr):
    """The same with so many bits of the plane's bytes above them, from these places on."""
    if _IS_INTERPRETED:
        MASK: tl.constexpr = (1 << WIDTH) - 1
        words = plane.to(tl.int32)
        lower = (octets & 15) | ((words >> lower_shift & MASK) << 4).to(tl.uint8)
        upper = (octets >> 4) | ((words >> upper_shift & MASK) << 4).to(tl.uint8)
    else:
        lower, upper = packed_halves_with_plane(octets, plane, lower_shift, upper_shift, WIDTH)
    return lower, upper


@triton.jit
def packed_halves_with_plane(octets, plane, lower_shift, upper_shift, WIDTH: tl.constexpr):
    return tl.inline_asm_elementwise(
        _WITH_ONE_BIT if WIDTH == 1 else _WITH_TWO_BITS, _OF_PLANE, [octets, plane, lower_shift, upper_shift],
        (tl.uint8, tl.uint8), is_pure=True, pack=4,
    )  # fmt: skip


@triton.jit
def looked_up(octets, table):
    """What the halves stand for: bytes of a table of four words at this address."""
    if _IS_INTERPRETED:
        bytes = table.to(tl.pointer_type(tl.uint8), bitcast=True)
        lower, upper = tl.load(bytes + (octets & 15)), tl.load(bytes + (octets >> 4))
    else:
        lower, upper = permuted(octets, tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3))
    return lower, upper


@triton.jit
def permuted(octets, first, second, third, fourth):
    return tl.inline_asm_elementwise(
        _LOOKED_UP, _OF_LOOKED_UP, [octets, first, second, third, fourth], (tl.uint8, tl.uint8), is_pure=True, pack=4
    )


@triton.jit
def above_two_to_23(codes):
    """float32: 2^23 and a byte; conversions of integers are slower."""
    if _IS_INTERPRETED:
        bits = codes.to(tl.int32) | _TWO_TO_23_BITS
    else:
        bits = packed_above_two_to_23(codes)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def packed_above_two_to_23(codes):
    return tl.inline_asm_elementwise(_WRITTEN, _OF_WRITTEN, [codes], tl.int32, is_pure=True, pack=4)


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
