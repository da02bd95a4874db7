"""Writes rows of floats as ggml's blocks of 256 weights, whose groups have small integers as scales.

    Q4_K, Q5_K  8 groups of 32: weight = d × scale × value - dmin × minimum, scales and minima of 6 bits
                bytes: d, dmin (float16), 12 of scales and minima, (Q5_K: 32 of fifth bits), 128 of nibbles
    Q6_K        16 groups of 16: weight = d × scale × (value - 32), scales of 8 bits
                bytes: 128 of low nibbles, 64 of high pairs of bits, 16 of scales, d (float16)

A group's scale is searched: each candidate rounds the weights, and least squares give the scale that fits those values
best; the one with the smallest error is used. Errors of large weights count more. Then the group's scale is rounded
too, and the weights once more.
"""

from collections.abc import Callable

import numpy

from ....kernels.arrays import FLOAT16, FLOAT32, Array

_BLOCK, _MOST = 256, 63.0  # weights of a block; the largest scale of 6 bits
_TINY = 1e-15
_WEIGHTS_AT_ONCE = 1 << 18  # measured with two threads: with fewer, they wait for Python's lock between operations
_ROWS_ADDED = 16  # that are added one after another; the order of sums is part of a file's bits


def q4_k(rows: Array) -> Array:
    return _by_pieces(rows, _q4_k)


def q5_k(rows: Array) -> Array:
    return _by_pieces(rows, _q5_k)


def q6_k(rows: Array) -> Array:
    return _by_pieces(rows, _q6_k)


def _by_pieces(rows: Array, quantize: Callable[[Array], Array]) -> Array:
    blocks, step = rows.reshape(-1, _BLOCK), _WEIGHTS_AT_ONCE // _BLOCK
    return numpy.concatenate([quantize(blocks[first : first + step]) for first in range(0, len(blocks), step)])


# --- scales and minima -----------------------------------------------------------------------------------------------


def _q4_k(blocks: Array) -> Array:
    head, values = _with_minima(blocks, most=15, first=-1.0, steps=20)
    pairs = values.reshape(-1, 4, 2, 32)
    return numpy.concatenate([head, nibbles(pairs[:, :, 0], pairs[:, :, 1]).reshape(-1, 128)], 1)


def _q5_k(blocks: Array) -> Array:
    head, values = _with_minima(blocks, most=31, first=-0.5, steps=15)
    # A byte for each index within a group, a bit for each group.
    fifth = numpy.packbits(values >> 4, axis=1, bitorder="little")[:, 0]
    pairs = (values & 15).reshape(-1, 4, 2, 32)
    return numpy.concatenate([head, fifth, nibbles(pairs[:, :, 0], pairs[:, :, 1]).reshape(-1, 128)], 1)


def _with_minima(blocks: Array, most: int, first: float, steps: int) -> tuple[Array, Array]:
    """d, dmin and the 12 bytes of scales and minima; and the values, 0 to `most`, by group."""
    groups = blocks.reshape(-1, 8, 32)
    both = _best_scales_and_minima(groups, most, first, steps)
    largest = [each.max(1, keepdims=True) for each in both]
    whole = [numpy.rint(divided(_MOST, top) * each).clip(max=_MOST) for top, each in zip(largest, both, strict=True)]
    d, dmin = ((top / FLOAT32.type(_MOST)).astype(FLOAT16) for top in largest)
    by_group, least = (d.astype(FLOAT32) * whole[0])[:, :, None], (dmin.astype(FLOAT32) * whole[1])[:, :, None]
    values = numpy.rint((groups + least) / where_not_0(by_group)).clip(0, most)
    values = numpy.where(by_group == 0, FLOAT32.type(0), values).astype(numpy.uint8)
    packed = _six_bits(*(each.astype(numpy.uint8) for each in whole))
    return numpy.concatenate([bytes_of(d), bytes_of(dmin), packed], 1), values


def _best_scales_and_minima(groups: Array, most: int, first: float, steps: int) -> tuple[Array, Array]:
    """Find each group's scale, and how far its least weight is below 0.

    For levels l and weights w of the errors, Σ w (s l + b - x)² is Σ w x² less the gain

        2 (s Σ w x l + b Σ w x) - (s² Σ w l² + 2 s b Σ w l + b² Σ w)

    The candidate with the largest gain is taken; each begins at the best b so far.
    """
    x = _side_by_side(groups)
    weights = numpy.sqrt(_sums(x * x) / FLOAT32.type(len(x))) + abs(x)
    weighted_x = weights * x
    sum_w, sum_x = _sums(weights).astype(float), _sums(weighted_x).astype(float)
    top, levels, products = x.max(0), numpy.empty_like(x), numpy.empty_like(x)

    def sums(low: Array, reach: float) -> tuple[Array, Array, Array]:
        """Σ w l, Σ w l², Σ w x l, where the levels from `low` to the top are so many."""
        numpy.subtract(x, low, out=levels)
        numpy.multiply(levels, divided(reach, top - low), out=levels)
        _round(levels, 0, most)
        sum_xl = _sums(numpy.multiply(weighted_x, levels, out=products))
        sum_l = _sums(numpy.multiply(weights, levels, out=products))
        sum_l2 = _sums(numpy.multiply(products, levels, out=products))
        return sum_l.astype(float), sum_l2.astype(float), sum_xl.astype(float)

    def gain(s: Array, b: Array, sum_l: Array, sum_l2: Array, sum_xl: Array) -> Array:
        return 2 * (s * sum_xl + b * sum_x) - (s * s * sum_l2 + 2 * s * b * sum_l + b * b * sum_w)

    low = x.min(0).clip(max=0).astype(float)
    scale = (top - low) / most
    best = gain(scale, low, *sums(low.astype(FLOAT32), float(most)))
    for step in range(steps + 1):
        sum_l, sum_l2, sum_xl = sums(low.astype(FLOAT32), first + 0.1 * step + most)
        determinant = sum_w * sum_l2 - sum_l * sum_l
        divisor = where_not_0(determinant)
        s, b = (sum_w * sum_xl - sum_x * sum_l) / divisor, (sum_l2 * sum_x - sum_l * sum_xl) / divisor
        # A minimum is at most 0.
        s, b = numpy.where(b > 0, sum_xl / where_not_0(sum_l2), s), b.clip(max=0)
        found = gain(s, b, sum_l, sum_l2, sum_xl)
        is_better = (found > best) & (determinant > 0)
        scale, low, best = (numpy.where(is_better, *each) for each in ((s, scale), (b, low), (found, best)))
    return scale.astype(FLOAT32).reshape(groups.shape[:2]), -low.astype(FLOAT32).reshape(groups.shape[:2])


def _side_by_side(groups: Array) -> Array:
    """[weights of a group, groups], so that sums over a group are computed for many groups at once."""
    return numpy.ascontiguousarray(groups.reshape(-1, groups.shape[-1]).T)


def _sums(numbers: Array) -> Array:
    """The sum of each column."""
    rows = range(0, len(numbers), _ROWS_ADDED)
    first, *others = (numpy.add.reduce(numbers[row : row + _ROWS_ADDED], 0, initial=0) for row in rows)
    return sum(others, first)


def _round(levels: Array, least: float, most: float) -> None:
    """To whole numbers in this range, in place."""
    numpy.rint(levels, out=levels)
    numpy.maximum(levels, FLOAT32.type(least), out=levels)
    numpy.minimum(levels, FLOAT32.type(most), out=levels)


def _six_bits(scales: Array, minima: Array) -> Array:
    """8 scales and 8 minima in 12 bytes: those of groups 0 to 3 in the low bits of bytes 0 to 3 and 4 to 7, the others'
    low bits in bytes 8 to 11, and their high ones above the first."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return numpy.concatenate([first, second, nibbles(scales[:, 4:] & 15, minima[:, 4:] & 15)], 1)


# --- scales alone ----------------------------------------------------------------------------------------------------


def _q6_k(blocks: Array) -> Array:
    groups = blocks.reshape(-1, 16, 16)
    scales = _best_scales(groups)
    largest = extremes(scales)
    is_nothing = abs(largest) < _TINY
    factor = numpy.where(is_nothing, FLOAT32.type(0), divided(-128.0, largest))
    d = divided(1.0, factor).astype(FLOAT16)
    whole = numpy.rint(factor * scales).clip(max=127)
    by_group = (d.astype(FLOAT32) * whole)[:, :, None]
    values = numpy.rint(groups / where_not_0(by_group)).clip(-32, 31) + 32
    values = numpy.where(by_group == 0, numpy.where(is_nothing[:, :, None], 0, 32), values).astype(numpy.uint8)
    half = values.reshape(-1, 2, 4, 32)  # 128 weights are 4 rows, whose bits share bytes
    low = nibbles(half[:, :, :2] & 15, half[:, :, 2:] & 15).reshape(-1, 128)
    shifts = numpy.array([0, 2, 4, 6], numpy.uint8)[:, None]
    high = numpy.bitwise_or.reduce(half >> 4 << shifts, 2).reshape(-1, 64)
    return numpy.concatenate([low, high, whole.astype(numpy.int8).view(numpy.uint8), bytes_of(d)], 1)


def _best_scales(groups: Array) -> Array:
    """Find each group's scale: weight ≈ scale × level, from -32 to 31."""
    x = _side_by_side(groups)
    extreme, weights = extremes(groups.reshape(-1, groups.shape[-1]))[:, 0], x * x
    levels, products = numpy.empty_like(x), numpy.empty_like(x)

    def sums(reach: float) -> tuple[Array, Array]:
        numpy.multiply(x, divided(-reach, extreme), out=levels)
        _round(levels, -32, 31)
        weighted = numpy.multiply(weights, levels, out=products)
        sum_l2 = numpy.multiply(weighted, levels, out=levels)
        return _sums(numpy.multiply(weighted, x, out=products)), _sums(sum_l2)

    sum_xl, sum_l2 = sums(32.0)
    scale = sum_xl / where_not_0(sum_l2)
    best = scale * sum_xl
    for step in (*range(-9, 0), *range(1, 10)):
        sum_xl, sum_l2 = sums(32.0 + 0.1 * step)
        is_better = (sum_l2 > 0) & (sum_xl * sum_xl > best * sum_l2)
        fitted = sum_xl / where_not_0(sum_l2)
        scale = numpy.where(is_better, fitted, scale)
        best = numpy.where(is_better, fitted * sum_xl, best)
    return numpy.where(abs(extreme) < _TINY, FLOAT32.type(0), scale).reshape(groups.shape[:2])


# --- bytes, and divisions by scales of which some are 0 --------------------------------------------------------------


def bytes_of(numbers: Array) -> Array:
    """[blocks, n] of a wider type, as uint8 [blocks, n × its size]."""
    return numpy.ascontiguousarray(numbers).view(numpy.uint8)


def nibbles(low: Array, high: Array) -> Array:
    return low | high << 4


def extremes(rows: Array) -> Array:
    """[rows, 1]: the number of the largest magnitude in each row."""
    return numpy.take_along_axis(rows, abs(rows).argmax(1, keepdims=True), 1)


def divided(number: float, scales: Array) -> Array:
    """number / scale, and 0 where the scale is."""
    return numpy.where(scales == 0, FLOAT32.type(0), FLOAT32.type(number) / where_not_0(scales))


def where_not_0(numbers: Array) -> Array:
    """Replace 0 by 1, for use as a divisor."""
    return numpy.where(numbers == 0, numbers.dtype.type(1), numbers)
