"""What the blocks of ggml's types mean: small whole numbers, and what they are multiplied by.

    number k of a block = d × scales[g] × values[k] - dmin × mins[g],   g the group of neighbours that k lies in

A block is so many neighbours along the input; its bytes lie one behind another. ggml's own names are kept: `d` and
`dmin` are the block's floats, `scales` and `mins` its groups' small integers. Multiplied in this order, numbers are bit
by bit those of ggml.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .ggml_grids import grid
from .mxfp4 import DOUBLED

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@dataclass(frozen=True, eq=False)
class GgmlBlocks:
    """[…] is whatever blocks there are, all of one type."""

    values: Tensor  # int8 […, numbers of a block]
    d: Tensor  # float32 […, 1], or […, groups]
    scales: Tensor | None = None  # int16 […, groups]; None: 1
    dmin: Tensor | None = None  # float32 […, 1]; None: nothing is taken off
    mins: Tensor | None = None  # int16 […, groups]; None: 1

    def floats(self) -> Tensor:
        """float32 […, numbers of a block]"""
        scales = self.d if self.scales is None else self.d * self.scales
        numbers = self.values.unflatten(-1, (scales.shape[-1], -1)) * scales[..., None]
        if self.dmin is not None:
            numbers -= (self.dmin if self.mins is None else self.dmin * self.mins)[..., None]
        return numbers.flatten(-2)


class GgmlType(NamedTuple):
    """How the numbers of a matrix are stored."""

    block: int  # numbers
    nbytes: int  # of a block
    read: Callable[[Tensor], GgmlBlocks]  # uint8 […, nbytes]


def _halves(octets: Tensor) -> Tensor:
    """float32 of float16, two octets each."""
    return octets.clone(memory_format=torch.contiguous_format).view(torch.float16).float()


def _words(octets: Tensor) -> Tensor:
    """int32 of unsigned integers of 16 bits."""
    return octets[..., ::2].int() | octets[..., 1::2].int() << 8


def _bits(octets: Tensor, width: int) -> Tensor:
    """[…, 8 / width, n] of n octets: their lowest bits first, as numbers of this width."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8)
    return octets[..., None, :] >> shifts[:, None] & (1 << width) - 1


def _each_bit(octets: Tensor) -> Tensor:
    """[…, 8 × n] of n octets, the lowest bit of each first."""
    return (octets[..., None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2)


def _nibbles(octets: Tensor, block: int = 32) -> Tensor:
    """The numbers of blocks of which each begins with all low halves of its octets."""
    return _bits(octets.unflatten(-1, (-1, block // 2)), 4).flatten(-3)


def _looked_up(values: tuple[int, ...], codes: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int8)[codes.long()]


def _q8_0(block: Tensor) -> GgmlBlocks:
    return GgmlBlocks(block[..., 2:].view(torch.int8), _halves(block[..., :2]))


def _q4_0(block: Tensor) -> GgmlBlocks:
    return GgmlBlocks(_nibbles(block[..., 2:]).view(torch.int8) - 8, _halves(block[..., :2]))


def _q4_1(block: Tensor) -> GgmlBlocks:
    values = _nibbles(block[..., 4:]).view(torch.int8)
    return GgmlBlocks(values, _halves(block[..., :2]), dmin=-_halves(block[..., 2:4]))


def _q5_0(block: Tensor) -> GgmlBlocks:
    values = _nibbles(block[..., 6:]) | _each_bit(block[..., 2:6]) << 4
    return GgmlBlocks(values.view(torch.int8) - 16, _halves(block[..., :2]))


def _q5_1(block: Tensor) -> GgmlBlocks:
    values = _nibbles(block[..., 8:]) | _each_bit(block[..., 4:8]) << 4
    return GgmlBlocks(values.view(torch.int8), _halves(block[..., :2]), dmin=-_halves(block[..., 2:4]))


def _iq4_nl(block: Tensor) -> GgmlBlocks:
    return GgmlBlocks(_looked_up(IQ4_VALUES, _nibbles(block[..., 2:])), _halves(block[..., :2]))


def _mxfp4(block: Tensor) -> GgmlBlocks:
    powers = torch.arange(-128, 128, dtype=torch.float64).exp2().float()[block[..., :1].long()]
    return GgmlBlocks(_looked_up(DOUBLED, _nibbles(block[..., 1:])), powers)


def _nvfp4(block: Tensor) -> GgmlBlocks:
    exponents, mantissas = (block[..., :4] >> 3 & 15).float(), (block[..., :4] & 7).float()
    normal = (1 + mantissas / 8) * (exponents - 7).exp2()
    scales = torch.where(exponents == 0, mantissas * 2.0**-9, normal) / 2
    scales = torch.where(block[..., :4] == 0x7F, 0.0, scales)  # no number
    return GgmlBlocks(_looked_up(DOUBLED, _nibbles(block[..., 4:], 16)), scales)


def _six_bit_scales(octets: Tensor) -> tuple[Tensor, Tensor]:
    """The 8 scales and 8 mins of 12 octets."""
    scales, mins, rest = octets.unflatten(-1, (3, 4)).unbind(-2)
    low = scales & 63, mins & 63
    high = rest & 15 | scales >> 2 & 48, rest >> 4 | mins >> 2 & 48
    return tuple(torch.cat(both, -1).short() for both in zip(low, high, strict=True))  # type: ignore[return-value]


def _q2_k(block: Tensor) -> GgmlBlocks:
    values = _bits(block[..., 16:80].unflatten(-1, (2, 32)), 2).flatten(-3)
    d, dmin = _halves(block[..., 80:84]).split(1, -1)
    return GgmlBlocks(values.view(torch.int8), d, (block[..., :16] & 15).short(), dmin, (block[..., :16] >> 4).short())


def _q3_k(block: Tensor) -> GgmlBlocks:
    low = _bits(block[..., 32:96].unflatten(-1, (2, 32)), 2).flatten(-3)
    high = _bits(block[..., :32], 1).flatten(-2)
    # Of each scale four bits, then the two above them.
    scales = _bits(block[..., 96:104], 4).flatten(-2) | _bits(block[..., 104:108], 2).flatten(-2) << 4
    values = (low | high << 2).view(torch.int8) - 4
    return GgmlBlocks(values, _halves(block[..., 108:110]), scales.short() - 32)


def _q4_k(block: Tensor) -> GgmlBlocks:
    d, dmin = _halves(block[..., :4]).split(1, -1)
    scales, mins = _six_bit_scales(block[..., 4:16])
    return GgmlBlocks(_nibbles(block[..., 16:], 64).view(torch.int8), d, scales, dmin, mins)


def _q5_k(block: Tensor) -> GgmlBlocks:
    d, dmin = _halves(block[..., :4]).split(1, -1)
    scales, mins = _six_bit_scales(block[..., 4:16])
    values = _nibbles(block[..., 48:], 64) | _bits(block[..., 16:48], 1).flatten(-2) << 4
    return GgmlBlocks(values.view(torch.int8), d, scales, dmin, mins)


def _q6_k(block: Tensor) -> GgmlBlocks:
    low = _nibbles(block[..., :128], 128)
    high = _bits(block[..., 128:192].unflatten(-1, (2, 32)), 2).flatten(-3)
    values = (low | high << 4).view(torch.int8) - 32
    scales = block[..., 192:208].view(torch.int8).short()
    return GgmlBlocks(values, _halves(block[..., 208:]), scales)


def _tq1_0(block: Tensor) -> GgmlBlocks:
    """Five digits to the base 3 in an octet, four in the last ones, as fractions of 256."""
    pieces = []
    for octets, digits in ((block[..., :32], 5), (block[..., 32:48], 5), (block[..., 48:52], 4)):
        powers = torch.tensor([3**digit for digit in range(digits)])
        rests = octets[..., None, :].int() * powers[:, None] & 255
        pieces.append((rests * 3 >> 8).flatten(-2))
    return GgmlBlocks(torch.cat(pieces, -1).to(torch.int8) - 1, _halves(block[..., 52:]))


def _tq2_0(block: Tensor) -> GgmlBlocks:
    values = _bits(block[..., :64].unflatten(-1, (2, 32)), 2).flatten(-3)
    return GgmlBlocks(values.view(torch.int8) - 1, _halves(block[..., 64:]))


def _signed(numbers: Tensor, signs: Tensor) -> Tensor:
    """Of n octets of signs 8 n numbers; a bit that is set is a minus."""
    return numbers * (1 - 2 * _each_bit(signs).view(torch.int8))


def _even_signs(words: Tensor) -> Tensor:
    """Octets of signs from their low seven bits, the eighth such that minuses are even in number."""
    low = words & 127
    parity = low ^ low >> 4
    parity ^= parity >> 2
    return (low | ((parity ^ parity >> 1) & 1) << 7).to(torch.uint8)


def _four_signs(octets: Tensor) -> tuple[Tensor, Tensor]:
    """Of four octets each: four octets of signs, and the four bits above those of them."""
    words = _words(octets)
    low, high = words[..., ::2].long(), words[..., 1::2].long()
    whole = low | high << 16
    return _even_signs(whole[..., None] >> torch.arange(0, 28, 7)).flatten(-2), (whole >> 28).short()


def _vectors(type: str, codes: Tensor) -> Tensor:
    return grid(type)[codes.long()].flatten(-2)


def _iq2_xxs(block: Tensor) -> GgmlBlocks:
    pairs = block[..., 2:].unflatten(-1, (8, 8))
    signs, scales = _four_signs(pairs[..., 4:].flatten(-2))
    values = _signed(_vectors("IQ2_XXS", pairs[..., :4].flatten(-2)), signs)
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, 2 * scales + 1)


def _nibble_scales(octets: Tensor) -> Tensor:
    """Odd numbers from two halves of each octet, the low one first."""
    return 2 * torch.stack((octets & 15, octets >> 4), -1).flatten(-2).short() + 1


def _iq2_xs(block: Tensor) -> GgmlBlocks:
    codes = _words(block[..., 2:66])
    values = _signed(_vectors("IQ2_XS", codes & 511), _even_signs(codes >> 9))
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, _nibble_scales(block[..., 66:]))


def _iq2_s(block: Tensor) -> GgmlBlocks:
    high = (block[..., 66:74, None] >> torch.arange(0, 8, 2, dtype=torch.uint8) & 3).flatten(-2)
    values = _signed(_vectors("IQ2_S", block[..., 2:34].int() | high.int() << 8), block[..., 34:66])
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, _nibble_scales(block[..., 74:]))


def _iq3_xxs(block: Tensor) -> GgmlBlocks:
    signs, scales = _four_signs(block[..., 66:])
    values = _signed(_vectors("IQ3_XXS", block[..., 2:66]), signs)
    return GgmlBlocks(values, _halves(block[..., :2]) / 4, 2 * scales + 1)


def _iq3_s(block: Tensor) -> GgmlBlocks:
    codes = block[..., 2:66].int() | _each_bit(block[..., 66:74]).int() << 8
    values = _signed(_vectors("IQ3_S", codes), block[..., 74:106])
    return GgmlBlocks(values, _halves(block[..., :2]), _nibble_scales(block[..., 106:]))


def _shifted(codes: Tensor, is_below: Tensor) -> Tensor:
    """Eight times the vectors of IQ1, each number of which is moved by an eighth."""
    vectors = 8 * grid("IQ1_S")[codes.long()]  # […, codes, 8]
    return (vectors + (1 - 2 * is_below.to(torch.int8))[..., None]).flatten(-2)


def _iq1_s(block: Tensor) -> GgmlBlocks:
    words = _words(block[..., 34:])
    high = (words[..., None] >> torch.arange(0, 12, 3) & 7).flatten(-2)
    values = _shifted(block[..., 2:34].int() | high << 8, (words >> 15).repeat_interleave(4, -1))
    return GgmlBlocks(values, _halves(block[..., :2]) / 8, (2 * (words >> 12 & 7) + 1).short())


def _iq1_m(block: Tensor) -> GgmlBlocks:
    words = _words(block[..., 48:])  # in their highest bits the float, in the others scales
    bits = (words >> 12 << torch.arange(0, 16, 4)).sum(-1, keepdim=True)
    d = _halves(torch.cat((bits & 255, bits >> 8), -1).to(torch.uint8))
    scales = (words[..., None] >> torch.arange(0, 12, 3) & 7).flatten(-2)
    high = torch.stack((block[..., 32:48] & 15, block[..., 32:48] >> 4), -1).flatten(-2).int()
    values = _shifted(block[..., :32].int() | (high & 7) << 8, high >> 3)
    return GgmlBlocks(values, d / 8, (2 * scales + 1).short())


def _iq4_xs(block: Tensor) -> GgmlBlocks:
    low = torch.stack((block[..., 4:8] & 15, block[..., 4:8] >> 4), -1).flatten(-2)
    high = _words(block[..., 2:4]) >> torch.arange(0, 16, 2) & 3
    values = _looked_up(IQ4_VALUES, _nibbles(block[..., 8:]))
    return GgmlBlocks(values, _halves(block[..., :2]), (low | high << 4).short() - 32)


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
