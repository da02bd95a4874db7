"""Writes rows of floats as ggml's blocks: an array of bytes per row, which other engines read.

    Q8_0   32 weights: float16 scale, int8 values
    Q4_0   32 weights: float16 scale, 4-bit values less 8, those of the second half in the high bits
    Q5_0   the same with a fifth bit
    Q4_K, Q5_K, Q6_K: `k_blocks.py`

The values are those of ggml's reference. Its formulas are float32, and so are these.
"""

from collections.abc import Callable

import numpy

from ....kernels.arrays import FLOAT16, FLOAT32, Array
from ...weights.gguf.tensors import FLOATS
from .k_blocks import bytes_of, divided, extremes, nibbles, q4_k, q5_k, q6_k

_BLOCK = 32


def quantized_rows(rows: Array, type_name: str) -> Array:
    """[rows, inputs] as uint8 [rows, bytes of a row]."""
    with numpy.errstate(over="ignore", invalid="ignore"):  # of weights too large or too small for a scale
        if type_name in FLOATS:
            return bytes_of(rows.astype(FLOATS[type_name], copy=False))
        return _QUANTIZERS[type_name](rows.astype(FLOAT32, copy=False)).reshape(len(rows), -1)


def q8_0(rows: Array) -> Array:
    blocks = rows.reshape(-1, _BLOCK)
    scales = abs(blocks).max(1, keepdims=True) / FLOAT32.type(127)
    values = _away_from_zero(blocks * divided(1.0, scales)).astype(numpy.int8)
    return numpy.concatenate([bytes_of(scales.astype(FLOAT16)), values.view(numpy.uint8)], 1)


def q4_0(rows: Array) -> Array:
    scales, values = _scaled(rows.reshape(-1, _BLOCK), 8)
    return numpy.concatenate([scales, nibbles(values[:, :16], values[:, 16:])], 1)


def q5_0(rows: Array) -> Array:
    scales, values = _scaled(rows.reshape(-1, _BLOCK), 16)
    # All fifth bits, the first weight's in the lowest bit.
    fifth, low = numpy.packbits(values >> 4, axis=1, bitorder="little"), values & 15
    return numpy.concatenate([scales, fifth, nibbles(low[:, :16], low[:, 16:])], 1)


def _scaled(blocks: Array, middle: int) -> tuple[Array, Array]:
    """The scale maps the largest magnitude to -middle; values are 0 to 2 × middle - 1."""
    scales = extremes(blocks) / FLOAT32.type(-middle)
    values = (blocks * divided(1.0, scales) + FLOAT32.type(middle + 0.5)).astype(numpy.uint8).clip(max=2 * middle - 1)
    return bytes_of(scales.astype(FLOAT16)), values


def _away_from_zero(values: Array) -> Array:
    """Round to the nearest, halves away from 0; numpy rounds them to even."""
    whole = numpy.trunc(values)
    return whole + numpy.sign(values) * (abs(values - whole) >= FLOAT32.type(0.5))


_QUANTIZERS: dict[str, Callable[[Array], Array]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q5_0": q5_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
