"""Rows of a weight matrix that a checkpoint stores as 8-bit floats, with scales for blocks of it.

No kernel multiplies 8-bit floats: they become int8, int4 or wider floats when they are packed, each from the float32
product of value and scale. Until then the values may be a view of the file, and nothing is widened as a whole.
"""

from dataclasses import replace
from functools import cache

import numpy

from ...records import dataclass
from ..arrays import FLOAT8_E4M3, FLOAT8_E5M2, FLOAT32, Array, DType

FLOAT8 = (FLOAT8_E4M3, FLOAT8_E5M2)
_NUMBERS_AT_ONCE = 1 << 17  # that are widened together, so that they stay in a processor's cache


@dataclass(frozen=True, eq=False)
class Float8Part:
    """weight[n, k] = values[n, k] × scales[(first_row + n) // block_rows, (first_column + k) // block_columns]"""

    values: Array  # [out, in] of one of FLOAT8
    scales: Array  # float32 [blocks of rows, blocks of columns]
    block: tuple[int, int]  # rows, columns
    offset: tuple[int, int] = (0, 0)  # where in its block the first value lies: row, column

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def rows(self, first: int, end: int) -> "Float8Part":
        """Some of the outputs."""
        return replace(self, values=self.values[first:end], offset=(self.offset[0] + first, self.offset[1]))

    def transposed(self) -> "Float8Part":
        """[in, out]."""
        values, scales = numpy.ascontiguousarray(self.values.T), numpy.ascontiguousarray(self.scales.T)
        return Float8Part(values, scales, self.block[::-1], self.offset[::-1])

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes

    def dequantized(self) -> Array:
        """float32 [out, in]"""
        (block_rows, block_columns), (first_row, first_column) = self.block, self.offset
        rows = numpy.arange(first_row, first_row + self.shape[0]) // block_rows
        columns = numpy.arange(first_column, first_column + self.shape[1]) // block_columns
        found, step = numpy.empty(self.shape, FLOAT32), max(1, _NUMBERS_AT_ONCE // max(1, self.shape[1]))
        codes, meanings = self.values.view(numpy.uint8), code_values(self.values.dtype)
        for first in range(0, self.shape[0], step):
            own = slice(first, first + step)
            scales = self.scales[rows[own]]
            meanings.take(codes[own], out=found[own], mode="clip")  # with another mode `out` is buffered
            with numpy.errstate(over="ignore", invalid="ignore"):
                found[own] *= scales if self.scales.shape[1] == 1 else scales.take(columns, 1)
        return found


@cache
def code_values(dtype: DType) -> Array:
    """float32 [256]: what each code of these 8-bit floats means."""
    return numpy.arange(256, dtype=numpy.uint8).view(dtype).astype(FLOAT32)
