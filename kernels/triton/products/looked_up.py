"""Halves of bytes looked up in a table of 16 bytes: eight at a time, by instructions that permute bytes.

The table lies in four registers. The lower three bits of a half choose among the bytes of two of them, once among the
first two and once among the last two; its fourth bit chooses which of both is right.
"""

import triton
import triton.language as tl

from .. import is_interpreted

_IS_INTERPRETED = tl.constexpr(is_interpreted())
# Of the bytes $2 the lower halves' become $0, the upper ones' $1. The table's words come four times each, once for each
# of the bytes; the registers are the same.
_ASSEMBLY = tl.constexpr("""{
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
_CONSTRAINTS = tl.constexpr(",".join(["=&r", "=&r", *["r"] * 17]))


@triton.jit
def looked_up(octets, table):
    """What the lower and the upper halves of bytes stand for: bytes of a table that begins at this address of words."""
    if _IS_INTERPRETED:
        bytes = table.to(tl.pointer_type(tl.uint8), bitcast=True)
        lower, upper = tl.load(bytes + (octets & 15)), tl.load(bytes + (octets >> 4))
    else:
        lower, upper = permuted(octets, tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3))
    return lower, upper


@triton.jit
def permuted(octets, first, second, third, fourth):
    """The same in assembly, of the table's four words."""
    return tl.inline_asm_elementwise(
        _ASSEMBLY, _CONSTRAINTS, [octets, first, second, third, fourth], (tl.uint8, tl.uint8), is_pure=True, pack=4
    )
