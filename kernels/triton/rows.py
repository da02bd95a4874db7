"""What kernels of whole rows share: how a row is spread over one program, and an order of numbers with their ids.

A number and its id make one integer, larger for larger numbers and, among equal ones, for lower ids. So the first of a
choice is a maximum of integers, and no two are equal. What is no number comes before all others.
"""

import triton
import triton.language as tl

NONE = tl.constexpr(-(2**63))  # comes after everything
_LAST_ID = tl.constexpr(0x7FFFFFFF)  # all bits are ones: what is left of it is what differs
_NO_NUMBER = tl.constexpr(0x7FC00000)


def block_of(width: int) -> int:
    """Numbers that a program holds at once."""
    return triton.next_power_of_2(width)


def warps_of(block: int) -> int:
    """So many that each thread holds 8 numbers, one wide load of 16 bits each, as far as there may be such."""
    return min(max(block // 256, 1), 16)


@triton.jit
def in_order(values, ids):
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)  # there is one zero only
    bits = tl.where(values != values, _NO_NUMBER, bits)
    return (_flipped(bits).to(tl.int64) << 32) | (_LAST_ID - ids)


@triton.jit
def value_of(keys):
    return _flipped((keys >> 32).to(tl.int32)).to(tl.float32, bitcast=True)


@triton.jit
def id_of(keys):
    return ((keys & _LAST_ID) ^ _LAST_ID).to(tl.int32)


@triton.jit
def _flipped(bits):
    """A float's bits as an integer of the same order; done twice, they are as they were."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
