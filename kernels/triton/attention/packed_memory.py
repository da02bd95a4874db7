"""Packed keys and values of one row and head inside a kernel: read by tokens, through the row's block table.

What is read stays in words; `packed_numbers.py` knows the numbers in them. Knows nothing of attention.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ..packed_numbers import halves, signed_keys

_ALL_BITS = tl.constexpr(-1)
_LOW_HALF = tl.constexpr(0xFFFF)


class Memory(NamedTuple):
    """Pointers to a row's block table and to one head's share of block 0, and the words from a block to the next."""

    table: tl.tensor
    key_blocks: tl.tensor
    value_blocks: tl.tensor
    key_scales: tl.tensor
    value_scales: tl.tensor
    stride: tl.tensor  # of keys and values
    scale_stride: tl.tensor


@triton.jit
def memory_of(
    table, keys, values, key_scales, value_scales, stride, scale_stride, head, HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
):  # fmt: skip
    """Of one head, from pointers to all of them; formats without scales have anything in their place."""
    share: tl.constexpr = HEAD_DIM // PER_WORD * BLOCK_SIZE
    scale_share: tl.constexpr = BLOCK_SIZE if KIND == "uint4" else BLOCK_SIZE // 2
    head = head.to(tl.int64)
    keys, values = keys + head * share, values + head * share
    key_scales, value_scales = key_scales + head * scale_share, value_scales + head * scale_share
    return Memory(table, keys, values, key_scales, value_scales, stride, scale_stride)


@triton.jit
def _blocks(table, units, context, UNIT: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """The blocks where units of UNIT tokens lie; block 0 beyond the context."""
    blocks = tl.load(table + units // (BLOCK_SIZE // UNIT), mask=units * UNIT < context, other=0)
    return tl.max_constancy(blocks, (min(units.shape[0], BLOCK_SIZE // UNIT),)).to(tl.int64)


@triton.jit
def key_words(
    memory, tokens, context, UNITS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr,
    PER_WORD: tl.constexpr,
):  # fmt: skip
    """[UNITS, tokens]; beyond the context they are anything."""
    units = tl.arange(0, UNITS)
    places = _blocks(memory.table, tokens, context, 1, BLOCK_SIZE) * memory.stride + tokens % BLOCK_SIZE
    pointers = memory.key_blocks + places[None, :] + units[:, None] * BLOCK_SIZE
    is_there = units[:, None] < HEAD_DIM // PER_WORD
    words = tl.load(pointers) if UNITS * PER_WORD == HEAD_DIM else tl.load(pointers, mask=is_there, other=0)
    return signed_keys(words, KIND)


@triton.jit
def value_words(
    memory, start, context, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KIND: tl.constexpr,
    PER_WORD: tl.constexpr,
):  # fmt: skip
    """[KEYS / PER_WORD, dimensions]; zeros beyond the context, where a NaN would outlive a weight of 0."""
    units = start // PER_WORD + tl.arange(0, KEYS // PER_WORD)
    columns = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    in_block = units % (BLOCK_SIZE // PER_WORD) * HEAD_DIM
    places = _blocks(memory.table, units, context, PER_WORD, BLOCK_SIZE) * memory.stride + in_block
    is_there = (units * PER_WORD < context)[:, None] & (columns < HEAD_DIM)[None, :]
    words = tl.load(memory.value_blocks + places[:, None] + columns[None, :], mask=is_there, other=0)
    if KIND == "bf16":  # the second token of a word may lie beyond; integers are never NaN
        words &= tl.where(units * 2 + 1 < context, _ALL_BITS, _LOW_HALF)[:, None]
    return words


@triton.jit
def scales_of(
    scales, memory, start, context, PART: tl.constexpr, KEYS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """float32 [KEYS], zeros beyond the context. Read in pairs: only whole words are copied ahead of the products."""
    pairs = start // 2 + tl.arange(0, KEYS // 2)
    pairs_a_block: tl.constexpr = BLOCK_SIZE // 2
    in_block = PART * pairs_a_block + pairs % pairs_a_block
    places = _blocks(memory.table, pairs, context, 2, BLOCK_SIZE) * memory.scale_stride + in_block
    words = tl.load(scales + places, mask=pairs * 2 < context, other=0)
    return halves(words & tl.where(pairs * 2 + 1 < context, _ALL_BITS, _LOW_HALF))
