"""Keys and values of one row and head inside a kernel, read through the row's block table.

They are multiplied in their own format, int8 in bfloat16, whose scales meet scores and weights.
"""

from typing import NamedTuple

import triton
import triton.language as tl


class Memory(NamedTuple):
    """Pointers to a row's block table, and to one head's numbers and scales of block 0's first token."""

    table: tl.tensor
    key_heads: tl.tensor
    value_heads: tl.tensor
    key_scales: tl.tensor  # anything, where keys are floats
    value_scales: tl.tensor
    num_heads: tl.tensor


@triton.jit
def memory_of(table, keys, values, key_scales, value_scales, head, num_heads, HEAD_DIM: tl.constexpr):
    """The memory of one head, from pointers to all heads."""
    own = head * HEAD_DIM
    return Memory(table, keys + own, values + own, key_scales + head, value_scales + head, num_heads)


@triton.jit
def places_of(memory, tokens, context, BLOCK_SIZE: tl.constexpr):
    """The number of heads before each of the row's tokens in memory; beyond the context those of block 0."""
    blocks = tl.load(memory.table + tokens // BLOCK_SIZE, mask=tokens < context, other=0).to(tl.int64)
    return (blocks * BLOCK_SIZE + tokens % BLOCK_SIZE) * memory.num_heads


@triton.jit
def keys_at(memory, offsets, HEAD_DIM: tl.constexpr):
    """[tokens, columns]; beyond the context they are anything."""
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    pointers = memory.key_heads + offsets[:, None] * HEAD_DIM + columns[None, :]
    is_column = (columns < HEAD_DIM)[None, :]
    return _met(tl.load(pointers) if columns.shape[0] == HEAD_DIM else tl.load(pointers, mask=is_column, other=0))


@triton.jit
def values_at(memory, offsets, is_there, HEAD_DIM: tl.constexpr):
    """[tokens, columns]; zeros where no token is, since a NaN would outlive a weight of 0."""
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_number = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    return _met(tl.load(memory.value_heads + offsets[:, None] * HEAD_DIM + columns[None, :], mask=is_number, other=0))


@triton.jit
def scales_at(memory, tokens, context, BLOCK_SIZE: tl.constexpr):
    """float32 [tokens], of keys and of values."""
    is_there, offsets = tokens < context, places_of(memory, tokens, context, BLOCK_SIZE)
    of_keys = tl.load(memory.key_scales + offsets, mask=is_there, other=0).to(tl.float32)
    return of_keys, tl.load(memory.value_scales + offsets, mask=is_there, other=0).to(tl.float32)


@triton.jit
def _met(numbers):
    return numbers.to(tl.float32).to(tl.bfloat16) if numbers.dtype == tl.int8 else numbers
