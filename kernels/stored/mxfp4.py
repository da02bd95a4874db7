"""Rows of a weight matrix in MXFP4, as gpt-oss is published: 4-bit floats, of which 32 neighbours share a power of 2.

Twice a value is a whole number from -12 to 12, so products with whole numbers lose nothing.
"""

from functools import cache

import numpy

from ...records import dataclass
from ..arrays import FLOAT32, Array

BLOCK = 32  # inputs that share a power of 2
DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the value of each code
_BIAS = 127  # of the exponents
_NAN = 255  # the exponent of a block that holds no numbers
_NUMBERS_AT_ONCE = 1 << 17  # that are widened together, so that they stay in a processor's cache


@dataclass(frozen=True, eq=False)
class Mxfp4Part:
    """weight[n, k] = DOUBLED[code of input k] / 2 × 2^(exponents[n, k // 32] - 127)"""

    codes: Array  # uint8 [out, in / 32, 16]: byte i of a block holds its inputs 2i, in the low half, and 2i + 1
    exponents: Array  # uint8 [out, in / 32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.exponents.shape[0], self.exponents.shape[1] * BLOCK

    @property
    def nbytes(self) -> int:
        return self.codes.size + self.exponents.size

    def rows(self, first: int, end: int) -> "Mxfp4Part":
        """Some of the outputs."""
        return Mxfp4Part(self.codes[first:end], self.exponents[first:end])

    def transposed(self) -> Array:
        """[in, out] as floats, for exponents are by output."""
        return self.dequantized().T

    def every_second(self, first: int) -> "Mxfp4Part":
        """Half of the rows, from the first one or the second one on."""
        return Mxfp4Part(self.codes[first::2], self.exponents[first::2])

    def dequantized(self) -> Array:
        """float32 [out, in]"""
        found = numpy.empty((*self.codes.shape, 2), FLOAT32)  # [out, in / 32, 16, 2]
        step = max(1, _NUMBERS_AT_ONCE // max(1, self.shape[1]))
        pairs, powers = _values_of_octets(), _powers()
        for first in range(0, len(found), step):
            own = slice(first, first + step)
            pairs.take(self.codes[own], 0, out=found[own], mode="clip")  # with another mode `out` is buffered
            with numpy.errstate(over="ignore"):
                found[own] *= powers[self.exponents[own]][..., None, None]
        return found.reshape(self.shape)


@cache
def _values_of_octets() -> Array:
    """float32 [256, 2]: the values of the low half and the high half of each byte."""
    values, octets = numpy.array(DOUBLED, FLOAT32) / 2, numpy.arange(256)
    return values[numpy.stack((octets & 15, octets >> 4), 1)]


@cache
def _powers() -> Array:
    """float32 [256]: what each exponent means."""
    return numpy.array([*(2.0 ** (exponent - _BIAS) for exponent in range(_NAN)), numpy.nan], FLOAT32)
