"""Sums over a part of the inputs, of weights in blocks of ggml's types (gpu_blocks.py); the rows stay as they come.

A tile's numbers are those that the blocks stand for, rounded once to the rows' format before they meet. A number's
product of scale and value is exact in float32 for every kind, so its bits are those of ggml whether or not a compiler
fuses it with what is taken off.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ....torch.packed.gpu_blocks import RUN, SPAN
from .tiles import factors_of, met, weighed
from .unpack_codes import above_two_to_23, halves_of, halves_with_plane, looked_up

_RUN, _SPAN = tl.constexpr(RUN), tl.constexpr(SPAN)
_TWO_TO_23 = tl.constexpr(2.0**23)


class BlockLines(NamedTuple):
    """Where the lines of a tile begin, in elements of each plane. Triton 3.6 lets no function return None within a
    tuple, so these are not the planes' addresses."""

    octets: tl.tensor
    plane: tl.tensor
    floats: tl.tensor  # of d and dmin
    words: tl.tensor  # of scales and mins


@triton.jit
def block_lines(lines, num_inputs, FORM: tl.constexpr):
    """`lines` are int64."""
    spans, pairs = tl.cdiv(num_inputs, _SPAN), tl.cdiv(num_inputs, 2 * _SPAN)
    octets = lines * (spans * (_SPAN if FORM.bits == 8 else _SPAN // 2))
    plane = lines * (_RUN * (pairs if FORM.bits == 5 else spans))
    return BlockLines(octets, plane, lines * (spans if FORM.block == _RUN else pairs), lines * spans)


@triton.jit
def words_of(weight, lines, span, FORM: tl.constexpr):
    """What a span's scales and mins are made of, for each line: d, scales, dmin, mins; what isn't there is d again."""
    index = span if FORM.block == _RUN else span // 2
    d = tl.load(weight.d + lines.floats + index)
    scales, dmin, mins = d, d, d
    if weight.scales is not None:
        scales = tl.load(weight.scales + lines.words + span)
    if weight.dmin is not None:
        dmin = tl.load(weight.dmin + lines.floats + index)
    if weight.mins is not None:
        mins = tl.load(weight.mins + lines.words + span)
    return d, scales, dmin, mins


@triton.jit
def _float_of(word, run: tl.constexpr, FORM: tl.constexpr):
    """float32 [lines]: a block's, for this run of a span."""
    if FORM.block == _RUN:
        half = (word >> (16 * run)).to(tl.int16)
        found = half.to(tl.bfloat16 if FORM.is_power else tl.float16, bitcast=True).to(tl.float32)
    else:
        found = word.to(tl.float32)
    return found


@triton.jit
def _of_groups(factor, word, run: tl.constexpr, GROUP: tl.constexpr):
    """A factor of lines times the whole numbers of this run's groups: [lines, 1], or [lines, RUN] of two groups."""
    if GROUP == _RUN:
        found = (factor * (word >> (8 * run)).to(tl.int8).to(tl.float32))[:, None]
    else:
        first = factor * (word >> (16 * run)).to(tl.int8).to(tl.float32)
        second = factor * (word >> (16 * run + 8)).to(tl.int8).to(tl.float32)
        found = tl.where(tl.arange(0, _RUN)[None, :] < GROUP, first[:, None], second[:, None])
    return found


@triton.jit
def numbers_of_run(codes, weight, words, run: tl.constexpr, FORM: tl.constexpr):
    """float32 [lines, RUN] of a run's codes."""
    d, scales, dmin, mins = words
    scale = _float_of(d, run, FORM) * FORM.unit
    if weight.scales is not None:
        scale = _of_groups(scale, scales, run, FORM.group)
    else:
        scale = scale[:, None]
    numbers = (above_two_to_23(codes) - (_TWO_TO_23 + FORM.zero)) * scale
    if weight.dmin is not None:
        least = _float_of(dmin, run, FORM)
        if weight.mins is not None:
            numbers -= _of_groups(least, mins, run, FORM.group)
        else:
            numbers -= least[:, None]
    return numbers


@triton.jit
def plane_of(weight, lines, span, FORM: tl.constexpr):
    """The plane of a span, and where in its bytes the first run's bits are; anything where there is no plane."""
    within = tl.arange(0, _RUN)[None, :]
    if FORM.bits == 5:
        found, shift = tl.load((weight.plane + lines.plane)[:, None] + span // 2 * _RUN + within), (span & 1) * 4
    elif FORM.bits == 6:
        found, shift = tl.load((weight.plane + lines.plane)[:, None] + span * _RUN + within), 0
    else:
        found, shift = tl.zeros((lines.octets.shape[0], 1), tl.uint8), 0
    return found, shift


@triton.jit
def codes_of_pair(weight, lines, plane, span, pair: tl.constexpr, FORM: tl.constexpr):
    """uint8 [lines, RUN] of two runs that are neighbours in a span."""
    within, octets = tl.arange(0, _RUN)[None, :], (weight.numbers + lines.octets)[:, None]
    if FORM.bits == 8:
        bytes = octets + (span * _SPAN + 2 * pair * _RUN) + within
        lower, upper = tl.load(bytes), tl.load(bytes + _RUN)
    else:
        octets = tl.load(octets + (span * (_SPAN // 2) + pair * _RUN) + within)
        if weight.table is not None:
            lower, upper = looked_up(octets, weight.table)
        elif FORM.bits == 4:
            lower, upper = halves_of(octets)
        else:
            WIDTH: tl.constexpr = FORM.bits - 4
            above, shift = plane
            lower_shift = shift + 2 * pair * WIDTH
            lower, upper = halves_with_plane(octets, above, lower_shift, lower_shift + WIDTH, WIDTH)
    return lower, upper


@triton.jit
def _factors_of(norm_weight, span, num_inputs):
    """A norm's, of a span's four runs."""
    start = span * _SPAN
    return (
        factors_of(norm_weight, start, num_inputs, _RUN), factors_of(norm_weight, start + _RUN, num_inputs, _RUN),
        factors_of(norm_weight, start + 2 * _RUN, num_inputs, _RUN),
        factors_of(norm_weight, start + 3 * _RUN, num_inputs, _RUN),
    )  # fmt: skip


@triton.jit
def sum_of_blocks_part(
    x_rows, weight, lines, norm_weight, part, num_inputs, sums, FORM: tl.constexpr, PARTS: tl.constexpr,
    IS_EVEN: tl.constexpr, met_type: tl.constexpr,
):  # fmt: skip
    """[lines, rows] over a part of the inputs, beginning with zeros as `sums`; of normed rows [1, rows] squares too."""
    spans, lines = tl.cdiv(num_inputs, _SPAN), block_lines(lines, num_inputs, FORM)
    length = tl.cdiv(spans, PARTS)
    squares = tl.zeros((x_rows.shape[0], _RUN if norm_weight is not None else 1), tl.float32)
    # Read a span ahead: what is as narrow as scales passes no shared memory, and would be waited for.
    words = words_of(weight, lines, tl.minimum(part * length, spans - 1), FORM)
    if norm_weight is not None:
        factors = _factors_of(norm_weight, part * length, num_inputs)
    for span in range(part * length, tl.minimum((part + 1) * length, spans)):
        words_ahead = words_of(weight, lines, tl.minimum(span + 1, spans - 1), FORM)
        if norm_weight is not None:
            factors_ahead = _factors_of(norm_weight, span + 1, num_inputs)
        plane = plane_of(weight, lines, span, FORM)
        for pair in tl.static_range(2):
            codes = codes_of_pair(weight, lines, plane, span, pair, FORM)
            for side in tl.static_range(2):
                inputs = span * _SPAN + (2 * pair + side) * _RUN + tl.arange(0, _RUN)[None, :]
                if IS_EVEN:
                    x_tile = tl.load(x_rows[:, None] + inputs)
                else:
                    x_tile = tl.load(x_rows[:, None] + inputs, mask=inputs < num_inputs, other=0)
                if norm_weight is not None:
                    x_tile, squares = weighed(x_tile, factors[2 * pair + side], squares)
                numbers = numbers_of_run(codes[side], weight, words, 2 * pair + side, FORM)
                sums = tl.dot(met(numbers, met_type), tl.trans(met(x_tile, met_type)), sums, input_precision="ieee")
        words = words_ahead
        if norm_weight is not None:
            factors = factors_ahead
    return sums, tl.sum(squares, 1)[None, :]
