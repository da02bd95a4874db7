"""How a row of numbers is spread over one program: the sizes that kernels of whole rows share."""

import triton


def block_of(width: int) -> int:
    """Numbers that a program holds at once."""
    return triton.next_power_of_2(width)


def warps_of(block: int) -> int:
    """So many that each thread holds 8 numbers, one wide load of 16 bits each, as far as there may be such."""
    return min(max(block // 256, 1), 16)
