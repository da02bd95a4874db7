"""Rows of a weight matrix as a GGUF file stores them: blocks of one of ggml's types, whose bytes stay as they are.

`ggml_blocks.py` says what they mean. The bytes may be a view of the file, and nothing is widened as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .ggml_blocks import TYPES, GgmlBlocks, GgmlType
from .mxfp4 import Mxfp4Part

_NUMBERS_AT_ONCE = 1 << 22  # that are widened together


@dataclass(frozen=True, eq=False)
class GgmlPart:
    """Each row is a whole number of blocks along the input."""

    type: str  # one of `TYPES`, by ggml's name: "Q4_K"
    octets: Tensor  # uint8 [out, bytes of a row]

    @property
    def block(self) -> GgmlType:
        return TYPES[self.type]

    @property
    def shape(self) -> tuple[int, int]:
        return self.octets.shape[0], self.octets.shape[1] // self.block.nbytes * self.block.block

    @property
    def nbytes(self) -> int:
        return self.octets.numel()

    def rows(self, first: int, end: int) -> "GgmlPart":
        """Some of the outputs."""
        return GgmlPart(self.type, self.octets[first:end])

    def selected(self, outputs: Tensor) -> "GgmlPart":
        """The outputs with these indices, in this order."""
        return GgmlPart(self.type, self.octets[outputs])

    def columns(self, first: int, end: int) -> "GgmlPart":
        """Some of the inputs, from the border of a block to that of another one."""
        numbers, nbytes, _ = self.block
        if first % numbers or end % numbers:
            raise ValueError(f"Inputs {first} to {end} don't lie between borders of {self.type}'s blocks of {numbers}.")
        return GgmlPart(self.type, self.octets[:, first // numbers * nbytes : end // numbers * nbytes])

    def transposed(self) -> Tensor:
        """[in, out] as floats, for blocks lie along the input."""
        return self.dequantized().T

    def to(self, device: torch.device, dtype: torch.dtype, copy: bool = True) -> Tensor:
        """As wider floats, on a device, like the tensor method of this name; always a copy."""
        found = torch.empty(self.shape, dtype=dtype, device=device)
        num_rows = max(1, _NUMBERS_AT_ONCE // self.shape[1])
        for own, rows in zip(found.split(num_rows), self.split(num_rows), strict=True):
            own.copy_(rows)
        return found

    def split(self, num_rows: int) -> Iterator[Tensor]:
        """float32 [num_rows, in] after another, like the tensor method of this name."""
        for octets in self.octets.split(num_rows):
            yield GgmlPart(self.type, octets).dequantized()

    def as_mxfp4(self) -> Mxfp4Part:
        """The same numbers of type MXFP4, whose blocks begin with all low halves, in published checkpoints' order."""
        blocks = self.octets.unflatten(1, (-1, self.block.nbytes))
        first, second = (blocks[..., 1:] & 15).unflatten(2, (-1, 2)), (blocks[..., 1:] >> 4).unflatten(2, (-1, 2))
        codes = torch.cat((first[..., 0] | first[..., 1] << 4, second[..., 0] | second[..., 1] << 4), 2)
        return Mxfp4Part(codes, blocks[..., 0].contiguous())

    def blocks(self) -> GgmlBlocks:
        """[out, blocks of a row]"""
        return self.block.read(self.octets.unflatten(1, (-1, self.block.nbytes)))

    def dequantized(self) -> Tensor:
        """[out, in] in float32."""
        return self.blocks().floats().flatten(1)
