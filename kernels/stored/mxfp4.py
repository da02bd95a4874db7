"""Rows of a weight matrix in MXFP4, as gpt-oss is published: 4-bit floats, of which 32 neighbours share a power of 2.

Twice a value is a whole number from -12 to 12, so products with whole numbers lose nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # inputs that share a power of 2
DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the value of each code
_BIAS = 127  # of the exponents
_NAN = 255  # the exponent of a block that holds no numbers
_ROWS_AT_ONCE = 1024  # that are widened together


@dataclass(frozen=True, eq=False)
class Mxfp4Part:
    """weight[n, k] = DOUBLED[code of input k] / 2 × 2^(exponents[n, k // 32] - 127)"""

    codes: Tensor  # uint8 [out, in / 32, 16]: byte i of a block holds its inputs 2i, in the low half, and 2i + 1
    exponents: Tensor  # uint8 [out, in / 32]

    @property
    def shape(self) -> tuple[int, int]:
        return self.exponents.shape[0], self.exponents.shape[1] * BLOCK

    @property
    def nbytes(self) -> int:
        return self.codes.numel() + self.exponents.numel()

    def rows(self, first: int, end: int) -> "Mxfp4Part":
        """Some of the outputs."""
        return Mxfp4Part(self.codes[first:end], self.exponents[first:end])

    def transposed(self) -> Tensor:
        """[in, out] as floats, for exponents are by output."""
        return self.dequantized().T

    def every_second(self, first: int) -> "Mxfp4Part":
        """Half of the rows, from the first one or the second one on."""
        return Mxfp4Part(self.codes[first::2], self.exponents[first::2])

    def to(self, device: torch.device, dtype: torch.dtype, copy: bool = True) -> Tensor:
        """As wider floats, on a device, like the tensor method of this name; always a copy."""
        found = torch.empty(self.shape, dtype=dtype, device=device)
        for own, rows in zip(found.split(_ROWS_AT_ONCE), self.split(_ROWS_AT_ONCE), strict=True):
            own.copy_(rows)
        return found

    def split(self, num_rows: int) -> Iterator[Tensor]:
        """float32 [num_rows, in] after another, like the tensor method of this name."""
        for codes, exponents in zip(self.codes.split(num_rows), self.exponents.split(num_rows), strict=True):
            yield Mxfp4Part(codes, exponents).dequantized()

    def dequantized(self) -> Tensor:
        """[out, in] in float32."""
        values = torch.tensor(DOUBLED, dtype=torch.float32) / 2
        codes = torch.stack((self.codes & 15, self.codes >> 4), -1).flatten(2)  # [out, in / 32, 32]
        powers = torch.tensor([*(2.0 ** (exponent - _BIAS) for exponent in range(_NAN)), torch.nan])
        return (values[codes.long()] * powers[self.exponents.long()][..., None]).flatten(1)
