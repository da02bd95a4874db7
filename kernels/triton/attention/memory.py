"""Keys and values of one row and head inside a kernel, read through the row's block table.

They are multiplied in the format they are stored in. int8 is multiplied as bfloat16; its scales are applied to the
scores (keys) and to the softmax weights (values).
"""

from typing import NamedTuple

import triton
import triton.language as tl


class Memory(NamedTuple):
    """Pointers to a row's block table, and to one head's keys, values and scales for the first token of block 0."""

    table: tl.tensor
    key_heads: tl.tensor
    value_heads: tl.tensor
    key_scales: tl.tensor  # not read if keys are floats
    value_scales: tl.tensor
    num_heads: tl.tensor


@triton.jit
def memory_of(table, keys, values, key_scales, value_scales, head, num_heads, HEAD_DIM: tl.constexpr):
    """The memory of one head, from pointers to all heads."""
    own = head * HEAD_DIM
    return Memory(table, keys + own, values + own, key_scales + head, value_scales + head, num_heads)


@triton.jit
def places_of(memory, tokens, context, BLOCK_SIZE: tl.constexpr):
    """Offsets of the row's tokens in memory, counted in heads; beyond the context they point into block 0."""
    blocks = tl.load(memory.table + tokens // BLOCK_SIZE, mask=tokens < context, other=0).to(tl.int64)
    return (blocks * BLOCK_SIZE + tokens % BLOCK_SIZE) * memory.num_heads


@triton.jit
def keys_at(memory, offsets, HEAD_DIM: tl.constexpr):
    """Load keys [tokens, columns]; beyond the context they are undefined."""
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    pointers = memory.key_heads + offsets[:, None] * HEAD_DIM + columns[None, :]
    is_column = (columns < HEAD_DIM)[None, :]
    return _met(tl.load(pointers) if columns.shape[0] == HEAD_DIM else tl.load(pointers, mask=is_column, other=0))


@triton.jit
def values_at(memory, offsets, is_there, HEAD_DIM: tl.constexpr):
    """Load values [tokens, columns]; zeros where there is no token, because 0 * NaN is NaN."""
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    is_number = is_there[:, None] & (columns < HEAD_DIM)[None, :]
    return _met(tl.load(memory.value_heads + offsets[:, None] * HEAD_DIM + columns[None, :], mask=is_number, other=0))


@triton.jit
def scales_at(memory, tokens, context, BLOCK_SIZE: tl.constexpr):
    """Load the scales of keys and of values, float32 [tokens] each.

    Both together, told apart by sums, whose result isn't computed again in another layout: as vectors they would be
    loaded in that of the scores, where a thread has up to sixteen of them, with their addresses.
    """
    is_value = tl.arange(0, 2)[None, :] > 0
    is_there, offsets = tokens < context, places_of(memory, tokens, context, BLOCK_SIZE)
    pointers = tl.where(is_value, memory.value_scales, memory.key_scales) + offsets[:, None]
    scales = tl.load(pointers, mask=is_there[:, None], other=0).to(tl.float32)
    return tl.sum(tl.where(is_value, 0.0, scales), 1), tl.sum(tl.where(is_value, scales, 0.0), 1)


@triton.jit
def _met(numbers):
    return numbers.to(tl.float32).to(tl.bfloat16) if numbers.dtype == tl.int8 else numbers
