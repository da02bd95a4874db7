"""What the blocks of ggml's types mean: small whole numbers, and what they are multiplied by.

    number k of a block = d × scales[g] × values[k] - dmin × mins[g],   g the group of neighbours that k lies in

A block is so many neighbours along the input; its bytes lie one behind another. ggml's own names are kept: `d` and
`dmin` are the block's floats, `scales` and `mins` its groups' small integers. Multiplied in this order, numbers are bit
by bit those of ggml.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy

from ...records import dataclass
from ..arrays import FLOAT16, FLOAT32, Array
from .ggml_grids import grid
from .mxfp4 import DOUBLED

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@dataclass(frozen=True, eq=False)
class GgmlBlocks:
    """[…] is whatever blocks there are, all of one type."""

    values: Array  # int8 […, numbers of a block]
    d: Array  # float32 […, 1], or […, groups]
    scales: Array | None = None  # int16 […, groups]; None: 1
    dmin: Array | None = None  # float32 […, 1]; None: nothing is taken off
    mins: Array | None = None  # int16 […, groups]; None: 1

    def write_floats(self, to: Array) -> None:
        """Fill a contiguous float32 array […, numbers of a block]."""
        scales = self.d if self.scales is None else self.d * self.scales
        to[:] = self.values
        numbers = to.reshape(*scales.shape, -1)
        numbers *= scales[..., None]
        if self.dmin is not None:
            numbers -= (self.dmin if self.mins is None else self.dmin * self.mins)[..., None]


class GgmlType(NamedTuple):
    """How the numbers of a matrix are stored."""

    block: int  # numbers
    nbytes: int  # of a block
    read: Callable[[Array], GgmlBlocks]  # uint8 […, nbytes]


def _joined(numbers: Array, dims: int = 2) -> Array:
    """The last dimensions as one."""
    return numbers.reshape(*numbers.shape[:-dims], -1)


def _split(numbers: Array, *shape: int) -> Array:
    """The last dimension as several."""
    return numbers.reshape(*numbers.shape[:-1], *shape)


def _halves(octets: Array) -> Array:
    """float32 of float16, two octets each."""
    return octets.view(FLOAT16).astype(FLOAT32)


def _words(octets: Array) -> Array:
    """int32 of unsigned integers of 16 bits."""
    return octets.view("<u2").astype(numpy.int32)


def _shifted_by(numbers: Array, stop: int, step: int) -> Array:
    """[…, n] of […]: each shifted right by 0, `step`, 2 × `step` and so on."""
    return numbers[..., None] >> numpy.arange(0, stop, step, dtype=numbers.dtype)


def _bits(octets: Array, width: int) -> Array:
    """[…, 8 / width, n] of n octets: their lowest bits first, as numbers of this width."""
    found = numpy.empty((*octets.shape[:-1], 8 // width, octets.shape[-1]), numpy.uint8)
    for number in range(8 // width):
        numpy.right_shift(octets, number * width, out=found[..., number, :])
    found &= (1 << width) - 1
    return found


def _each_bit(octets: Array) -> Array:
    """[…, 8 × n] of n octets, the lowest bit of each first."""
    return numpy.unpackbits(octets, axis=-1, bitorder="little")


def _in_turns(octets: Array) -> Array:
    """[…, 2 × n] of n octets: the low half and the high half of each."""
    return _joined(numpy.stack((octets & 15, octets >> 4), -1))


def _nibbles(octets: Array, block: int = 32) -> Array:
    """The numbers of blocks of which each begins with all low halves of its octets."""
    return _joined(_bits(_split(octets, -1, block // 2), 4), 3)


def _looked_up(values: tuple[int, ...], codes: Array) -> Array:
    return numpy.array(values, numpy.int8).take(codes)


def _q8_0(block: Array) -> GgmlBlocks:
    return GgmlBlocks(block[..., 2:].view(numpy.int8), _halves(block[..., :2]))


def _q4_0(block: Array) -> GgmlBlocks:
    return GgmlBlocks(_nibbles(block[..., 2:]).view(numpy.int8) - 8, _halves(block[..., :2]))


def _q4_1(block: Array) -> GgmlBlocks:
    values = _nibbles(block[..., 4:]).view(numpy.int8)
    return GgmlBlocks(values, _halves(block[..., :2]), dmin=-_halves(block[..., 2:4]))


def _q5_0(block: Array) -> GgmlBlocks:
    values = _nibbles(block[..., 6:]) | _each_bit(block[..., 2:6]) << 4
    return GgmlBlocks(values.view(numpy.int8) - 16, _halves(block[..., :2]))


def _q5_1(block: Array) -> GgmlBlocks:
    values = _nibbles(block[..., 8:]) | _each_bit(block[..., 4:8]) << 4
    return GgmlBlocks(values.view(numpy.int8), _halves(block[..., :2]), dmin=-_halves(block[..., 2:4]))


def _iq4_nl(block: Array) -> GgmlBlocks:
    return GgmlBlocks(_looked_up(IQ4_VALUES, _nibbles(block[..., 2:])), _halves(block[..., :2]))


def _mxfp4(block: Array) -> GgmlBlocks:
    powers = numpy.ldexp(FLOAT32.type(1), numpy.arange(-128, 128))
    return GgmlBlocks(_looked_up(DOUBLED, _nibbles(block[..., 1:])), powers.take(block[..., :1]))


def _nvfp4(block: Array) -> GgmlBlocks:
    return GgmlBlocks(_looked_up(DOUBLED, _nibbles(block[..., 4:], 16)), _nvfp4_scales().take(block[..., :4]))


@cache
def _nvfp4_scales() -> Array:
    """float32 [256]: half of what each code of an 8-bit float without a sign means."""
    exponents, mantissas = numpy.arange(256) >> 3 & 15, numpy.arange(256) & 7
    normal = numpy.ldexp(1 + mantissas / 8, exponents - 7)
    scales = numpy.where(exponents == 0, mantissas * 2.0**-9, normal) / 2
    scales[0x7F] = 0  # no number
    return scales.astype(FLOAT32)


def _six_bit_scales(octets: Array) -> tuple[Array, Array]:
    """The 8 scales and 8 mins of 12 octets."""
    scales, mins, rest = octets[..., :4], octets[..., 4:8], octets[..., 8:]
    all_scales = numpy.concatenate((scales & 63, rest & 15 | scales >> 2 & 48), -1)
    all_mins = numpy.concatenate((mins & 63, rest >> 4 | mins >> 2 & 48), -1)
    return all_scales.astype(numpy.int16), all_mins.astype(numpy.int16)


def _q2_k(block: Array) -> GgmlBlocks:
    values = _joined(_bits(_split(block[..., 16:80], 2, 32), 2), 3)
    scales, mins = (each.astype(numpy.int16) for each in (block[..., :16] & 15, block[..., :16] >> 4))
    return GgmlBlocks(values.view(numpy.int8), _halves(block[..., 80:82]), scales, _halves(block[..., 82:84]), mins)


def _q3_k(block: Array) -> GgmlBlocks:
    low = _joined(_bits(_split(block[..., 32:96], 2, 32), 2), 3)
    high = _joined(_bits(block[..., :32], 1))
    # Of each scale four bits, then the two above them.
    scales = _joined(_bits(block[..., 96:104], 4)) | _joined(_bits(block[..., 104:108], 2)) << 4
    values = (low | high << 2).view(numpy.int8) - 4
    return GgmlBlocks(values, _halves(block[..., 108:110]), scales.astype(numpy.int16) - 32)


def _q4_k(block: Array) -> GgmlBlocks:
    d, dmin, (scales, mins) = _halves(block[..., :2]), _halves(block[..., 2:4]), _six_bit_scales(block[..., 4:16])
    return GgmlBlocks(_nibbles(block[..., 16:], 64).view(numpy.int8), d, scales, dmin, mins)


def _q5_k(block: Array) -> GgmlBlocks:
    d, dmin, (scales, mins) = _halves(block[..., :2]), _halves(block[..., 2:4]), _six_bit_scales(block[..., 4:16])
    values = _nibbles(block[..., 48:], 64) | _joined(_bits(block[..., 16:48], 1)) << 4
    return GgmlBlocks(values.view(numpy.int8), d, scales, dmin, mins)


def _q6_k(block: Array) -> GgmlBlocks:
    low = _nibbles(block[..., :128], 128)
    high = _joined(_bits(_split(block[..., 128:192], 2, 32), 2), 3)
    values = (low | high << 4).view(numpy.int8) - 32
    scales = block[..., 192:208].view(numpy.int8).astype(numpy.int16)
    return GgmlBlocks(values, _halves(block[..., 208:]), scales)


def _tq1_0(block: Array) -> GgmlBlocks:
    """Five digits to the base 3 in an octet, four in the last ones, as fractions of 256."""
    pieces = []
    for octets, digits in ((block[..., :32], 5), (block[..., 32:48], 5), (block[..., 48:52], 4)):
        rests = numpy.stack([octets * numpy.uint8(3**digit) for digit in range(digits)], -2)
        pieces.append(_joined(rests.astype(numpy.uint16) * 3 >> 8))
    return GgmlBlocks(numpy.concatenate(pieces, -1).astype(numpy.int8) - 1, _halves(block[..., 52:]))


def _tq2_0(block: Array) -> GgmlBlocks:
    values = _joined(_bits(_split(block[..., :64], 2, 32), 2), 3)
    return GgmlBlocks(values.view(numpy.int8) - 1, _halves(block[..., 64:]))


def _signed(numbers: Array, signs: Array) -> Array:
    """Negate those of 8 n numbers whose bit is set in n octets."""
    return numbers * (1 - 2 * _each_bit(signs).view(numpy.int8))


def _even_signs(words: Array) -> Array:
    """Octets of signs from their low seven bits, the eighth such that minuses are even in number."""
    low = words & 127
    parity = low ^ low >> 4
    parity ^= parity >> 2
    return (low | ((parity ^ parity >> 1) & 1) << 7).astype(numpy.uint8)


def _four_signs(octets: Array) -> tuple[Array, Array]:
    """Split each four octets into four octets of signs and the four bits above these."""
    words = octets.view("<u4")
    return _even_signs(_joined(_shifted_by(words, 28, 7))), (words >> 28).astype(numpy.int16)


def _vectors(type: str, codes: Array) -> Array:
    return _joined(grid(type).take(codes, 0))


def _iq2_xxs(block: Array) -> GgmlBlocks:
    pairs = _split(block[..., 2:], 8, 8)
    signs, scales = _four_signs(_joined(pairs[..., 4:]))
    values = _signed(_vectors("IQ2_XXS", _joined(pairs[..., :4])), signs)
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, 2 * scales + 1)


def _nibble_scales(octets: Array) -> Array:
    """Odd numbers from two halves of each octet, the low one first."""
    return 2 * _in_turns(octets).astype(numpy.int16) + 1


def _iq2_xs(block: Array) -> GgmlBlocks:
    codes = _words(block[..., 2:66])
    values = _signed(_vectors("IQ2_XS", codes & 511), _even_signs(codes >> 9))
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, _nibble_scales(block[..., 66:]))


def _iq2_s(block: Array) -> GgmlBlocks:
    high = _joined(_shifted_by(block[..., 66:74], 8, 2) & 3)
    codes = block[..., 2:34] | high.astype(numpy.int32) << 8
    values = _signed(_vectors("IQ2_S", codes), block[..., 34:66])
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, _nibble_scales(block[..., 74:]))


def _iq3_xxs(block: Array) -> GgmlBlocks:
    signs, scales = _four_signs(block[..., 66:])
    values = _signed(_vectors("IQ3_XXS", block[..., 2:66]), signs)
    return GgmlBlocks(values, _halves(block[..., :2]) / 4, 2 * scales + 1)


def _iq3_s(block: Array) -> GgmlBlocks:
    codes = block[..., 2:66].astype(numpy.int32) | _each_bit(block[..., 66:74]).astype(numpy.int32) << 8
    values = _signed(_vectors("IQ3_S", codes), block[..., 74:106])
    return GgmlBlocks(values, _halves(block[..., :2]), _nibble_scales(block[..., 106:]))


def _shifted(codes: Array, is_below: Array) -> Array:
    """Eight times the vectors of IQ1, each number of which is moved by an eighth."""
    vectors = 8 * grid("IQ1_S").take(codes, 0)  # […, codes, 8]
    return _joined(vectors + (1 - 2 * is_below.astype(numpy.int8))[..., None])


def _iq1_s(block: Array) -> GgmlBlocks:
    words = _words(block[..., 34:])
    high = _joined(_shifted_by(words, 12, 3) & 7)
    values = _shifted(block[..., 2:34].astype(numpy.int32) | high << 8, (words >> 15).repeat(4, -1))
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, (2 * (words >> 12 & 7) + 1).astype(numpy.int16))


def _iq1_m(block: Array) -> GgmlBlocks:
    words = _words(block[..., 48:])  # in their highest bits the float, in the others scales
    bits = (words >> 12 << numpy.arange(0, 16, 4)).sum(-1, keepdims=True)
    scales = _joined(_shifted_by(words, 12, 3) & 7)
    high = _in_turns(block[..., 32:48]).astype(numpy.int32)
    values = _shifted(block[..., :32].astype(numpy.int32) | (high & 7) << 8, high >> 3)
    return GgmlBlocks(values, _halves(bits.astype(numpy.uint16)) / 8, (2 * scales + 1).astype(numpy.int16))


def _iq4_xs(block: Array) -> GgmlBlocks:
    low = _in_turns(block[..., 4:8])
    high = _words(block[..., 2:4]) >> numpy.arange(0, 16, 2) & 3
    values = _looked_up(IQ4_VALUES, _nibbles(block[..., 8:]))
    return GgmlBlocks(values, _halves(block[..., :2]), (low | high << 4).astype(numpy.int16) - 32)


TYPES: dict[str, GgmlType] = {
    "Q4_0": GgmlType(32, 18, _q4_0),
    "Q4_1": GgmlType(32, 20, _q4_1),
    "Q5_0": GgmlType(32, 22, _q5_0),
    "Q5_1": GgmlType(32, 24, _q5_1),
    "Q8_0": GgmlType(32, 34, _q8_0),
    "Q2_K": GgmlType(256, 84, _q2_k),
    "Q3_K": GgmlType(256, 110, _q3_k),
    "Q4_K": GgmlType(256, 144, _q4_k),
    "Q5_K": GgmlType(256, 176, _q5_k),
    "Q6_K": GgmlType(256, 210, _q6_k),
    "IQ1_S": GgmlType(256, 50, _iq1_s),
    "IQ1_M": GgmlType(256, 56, _iq1_m),
    "IQ2_XXS": GgmlType(256, 66, _iq2_xxs),
    "IQ2_XS": GgmlType(256, 74, _iq2_xs),
    "IQ2_S": GgmlType(256, 82, _iq2_s),
    "IQ3_XXS": GgmlType(256, 98, _iq3_xxs),
    "IQ3_S": GgmlType(256, 110, _iq3_s),
    "IQ4_NL": GgmlType(32, 18, _iq4_nl),
    "IQ4_XS": GgmlType(256, 136, _iq4_xs),
    "TQ1_0": GgmlType(256, 54, _tq1_0),
    "TQ2_0": GgmlType(256, 66, _tq2_0),
    "MXFP4": GgmlType(32, 17, _mxfp4),
    "NVFP4": GgmlType(64, 36, _nvfp4),
}
