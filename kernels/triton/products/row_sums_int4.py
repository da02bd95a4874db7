"""Sums over a part of the inputs of one row, of 4-bit weights in groups.

As in row_sums.py, halves of bytes are never converted; their zeros are taken off when they have been added up. Eight
bytes make a chunk: its lower halves are of one group, so are its upper ones. Knows nothing of whose lines it is given.
"""

import triton
import triton.language as tl

from ...quantized_part import MIDDLE
from ..packed_numbers import in_parts
from .bits_as_floats import FACTOR, bits_as_float, enlarged
from .row_sums import loaded_row, words_of

_MIDDLE = tl.constexpr(MIDDLE)
_CHUNK = tl.constexpr(8)  # bytes


@triton.jit
def _added(words, row_parts, sums, FIRST: tl.constexpr):
    """Products of a half of all bytes, the one whose bits begin with FIRST, are added to sums [lines, words]."""
    for place in tl.static_range(4):
        numbers = bits_as_float(words, 8 * place + FIRST, 4)
        met = enlarged(row_parts[place], 8 * place + FIRST)
        sums = tl.fma(numbers, tl.broadcast_to(met, sums.shape), sums)
    return sums


@triton.jit
def _in_chunks(sums):
    """Sums of words as sums of chunks of two."""
    return tl.sum(tl.reshape(sums, (sums.shape[0], sums.shape[1] // 2, 2)), 2)


@triton.jit
def _total(row_parts):
    return _in_chunks(row_parts[0] + row_parts[1] + (row_parts[2] + row_parts[3]))


@triton.jit
def _scaled(products, total, scales, zeros, groups, is_there, sums):
    """Chunks' products [lines, chunks] less their zeros' with the row, scaled, are added to `sums`."""
    if zeros is None:
        products -= _MIDDLE * FACTOR * total
    else:
        found = tl.load(zeros[:, None] + groups, mask=is_there, other=0).to(tl.int32)
        products -= bits_as_float(found, 0, 8) * enlarged(total, 0)
    return sums + tl.load(scales[:, None] + groups, mask=is_there, other=0).to(tl.float32) * products


@triton.jit
def _groups_of(first_inputs, GROUP: tl.constexpr):
    """Of chunks [1, chunks]."""
    groups = first_inputs // GROUP
    # Not true, and harmless for what is no multiple of two: it has threads lie along a line's chunks, as their sums do.
    return tl.max_contiguous(tl.multiple_of(groups, [1, 1]), [1, 2])


@triton.jit
def sum_of_int4_row(
    x, word_lines, scales, zeros, norm_weight, part, INPUTS: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """[lines, 1] over a part of the inputs; of a normed row [1, 1] squares too."""
    count = tl.cdiv(INPUTS, 2 * HALF) * HALF // 4
    length = tl.cdiv(tl.cdiv(count, WORDS), PARTS) * WORDS
    sums = tl.zeros((word_lines.shape[0], WORDS * 4 // _CHUNK), tl.float32)
    squares = tl.zeros((1, WORDS * 4), tl.float32)
    for first in range(part * length, tl.minimum((part + 1) * length, count), WORDS):
        words = words_of(word_lines, first, count, WORDS, 2)
        octets = first * 4 + tl.arange(0, WORDS * 4)[None, :]
        lower_inputs = octets // HALF * (2 * HALF) + octets % HALF
        lower_row, squares = loaded_row(x, norm_weight, lower_inputs, INPUTS, squares)
        upper_row, squares = loaded_row(x, norm_weight, lower_inputs + HALF, INPUTS, squares)
        lower_parts, upper_parts = in_parts(lower_row, 4), in_parts(upper_row, 4)
        lower_total, upper_total = _total(lower_parts), _total(upper_parts)
        first_octets = first * 4 + tl.arange(0, WORDS * 4 // _CHUNK)[None, :] * _CHUNK
        first_inputs = first_octets // HALF * (2 * HALF) + first_octets % HALF
        is_there = first_octets < count * 4
        nothing = tl.zeros((word_lines.shape[0], WORDS), tl.float32)
        lower = _added(words, lower_parts, nothing, 0)
        lower_groups, upper_groups = _groups_of(first_inputs, GROUP), _groups_of(first_inputs + HALF, GROUP)
        if GROUP % (2 * HALF) == 0:
            both = _in_chunks(_added(words, upper_parts, lower, 4))
            sums = _scaled(both, lower_total + upper_total, scales, zeros, lower_groups, is_there, sums)
        else:
            upper = _in_chunks(_added(words, upper_parts, nothing, 4))
            sums = _scaled(_in_chunks(lower), lower_total, scales, zeros, lower_groups, is_there, sums)
            sums = _scaled(upper, upper_total, scales, zeros, upper_groups, is_there, sums)
    return tl.sum(sums, 1)[:, None] / FACTOR, tl.sum(squares, 1)[:, None]
