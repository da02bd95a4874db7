"""Sums over a part of the inputs of one row, in registers: no matrix units, no shared memory on the weights' way.

Weights are loaded as words of 32 bits, of neighbouring inputs: as many words a thread as leave it, of the row, with one
wide load's numbers. Bytes are never converted (bits_as_floats.py); as they are, without a sign, they meet the row 128
too high, which the row's own sum takes off again when all is added up. Knows nothing of whose lines it is given.
"""

import triton
import triton.language as tl

from ..packed_numbers import in_parts
from .bits_as_floats import FACTOR, bits_as_float, enlarged

_TOP_BITS = tl.constexpr(-2139062144)  # 0x80808080: turned, signed bytes are 128 too high


@triton.jit
def words_of(lines, first, count, WORDS: tl.constexpr, RUN: tl.constexpr):
    """A tile of words [lines, WORDS] from number `first` on, zeros from `count` on; a thread has runs of RUN."""
    places = tl.max_contiguous(tl.multiple_of(first + tl.arange(0, WORDS), RUN), RUN)[None, :]
    return tl.load(lines[:, None] + places, mask=places < count, other=0)


@triton.jit
def _numbers(words, KIND: tl.constexpr, PLACE: tl.constexpr):
    """The float32 at one place of each word; int8's as bits without a sign."""
    if KIND == "bf16":
        found = (words & -65536 if PLACE == 1 else words << 16).to(tl.float32, bitcast=True)
    elif KIND == "fp16":
        found = (words >> 16 * PLACE).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    elif KIND == "int8":
        found = bits_as_float(words, 8 * PLACE, 8)
    else:
        found = words.to(tl.float32, bitcast=True)
    return found


@triton.jit
def loaded_row(x, norm_weight, inputs, num_inputs, squares):
    """The row's numbers [1, inputs], weighed where there is a norm; and the squares so far."""
    numbers = tl.load(x + inputs, mask=inputs < num_inputs, other=0).to(tl.float32)
    if norm_weight is not None:
        squares = tl.fma(numbers, numbers, squares)
        numbers *= tl.load(norm_weight + inputs, mask=inputs < num_inputs, other=0).to(tl.float32)
    return numbers, squares


@triton.jit
def sum_of_row(
    x, word_lines, norm_weight, part, INPUTS: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """[lines, 1] over a part of the inputs; of a normed row [1, 1] squares too."""
    count = INPUTS // PER_WORD
    length = tl.cdiv(tl.cdiv(count, WORDS), PARTS) * WORDS
    sums = tl.zeros((word_lines.shape[0], WORDS), tl.float32)
    row_sums = tl.zeros((1, WORDS), tl.float32)
    squares = tl.zeros((1, WORDS * PER_WORD), tl.float32)
    for first in range(part * length, tl.minimum((part + 1) * length, count), WORDS):
        words = words_of(word_lines, first, count, WORDS, 2 if KIND == "int8" else 4)
        if KIND == "int8":
            words ^= _TOP_BITS
        inputs = first * PER_WORD + tl.arange(0, WORDS * PER_WORD)[None, :]
        row, squares = loaded_row(x, norm_weight, inputs, INPUTS, squares)
        row_parts = in_parts(row, PER_WORD)
        for place in tl.static_range(PER_WORD):
            met = row_parts[place]
            if KIND == "int8":
                row_sums += met
                met = enlarged(met, 8 * place)
            sums = tl.fma(_numbers(words, KIND, place), tl.broadcast_to(met, sums.shape), sums)
    found = tl.sum(sums, 1)[:, None]
    if KIND == "int8":
        found = found / FACTOR - 128 * tl.sum(row_sums, 1)[:, None]
    return found, tl.sum(squares, 1)[:, None]
