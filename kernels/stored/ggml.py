"""Rows of a weight matrix as a GGUF file stores them: blocks of one of ggml's types, whose bytes stay as they are.

`ggml_blocks.py` says what they mean. The bytes may be a view of the file, and nothing is widened as a whole.
"""

import numpy

from ...records import dataclass
from ..arrays import FLOAT32, Array
from .ggml_blocks import TYPES, GgmlBlocks, GgmlType
from .mxfp4 import Mxfp4Part

_NUMBERS_AT_ONCE = 1 << 16  # that are widened together, so that they stay in a processor's cache


@dataclass(frozen=True, eq=False)
class GgmlPart:
    """Each row is a whole number of blocks along the input."""

    type: str  # one of `TYPES`, by ggml's name: "Q4_K"
    octets: Array  # uint8 [out, bytes of a row]

    @property
    def block(self) -> GgmlType:
        return TYPES[self.type]

    @property
    def shape(self) -> tuple[int, int]:
        return self.octets.shape[0], self.octets.shape[1] // self.block.nbytes * self.block.block

    @property
    def nbytes(self) -> int:
        return self.octets.size

    def rows(self, first: int, end: int) -> "GgmlPart":
        """Some of the outputs."""
        return GgmlPart(self.type, self.octets[first:end])

    def columns(self, first: int, end: int) -> "GgmlPart":
        """Some of the inputs, from the border of a block to that of another one."""
        numbers, nbytes, _ = self.block
        if first % numbers or end % numbers:
            raise ValueError(f"Inputs {first} to {end} don't lie between borders of {self.type}'s blocks of {numbers}.")
        return GgmlPart(self.type, self.octets[:, first // numbers * nbytes : end // numbers * nbytes])

    def transposed(self) -> Array:
        """[in, out] as floats, for blocks lie along the input."""
        return self.dequantized().T

    def as_mxfp4(self) -> Mxfp4Part:
        """The same numbers of type MXFP4, whose blocks begin with all low halves, in published checkpoints' order."""
        blocks = self.octets.reshape(len(self.octets), -1, self.block.nbytes)
        even, odd = blocks[..., 1::2], blocks[..., 2::2]
        codes = numpy.concatenate((even & 15 | odd << 4, even >> 4 | odd & 240), 2)
        return Mxfp4Part(codes, numpy.ascontiguousarray(blocks[..., 0]))

    def blocks(self) -> GgmlBlocks:
        """[out, blocks of a row]"""
        with numpy.errstate(invalid="ignore"):  # bytes may be floats that are no numbers
            return self.block.read(self.octets.reshape(len(self.octets), -1, self.block.nbytes))

    def dequantized(self) -> Array:
        """float32 [out, in]"""
        found, step = numpy.empty(self.shape, FLOAT32), max(1, _NUMBERS_AT_ONCE // max(1, self.shape[1]))
        for first in range(0, len(found), step):
            rows = found[first : first + step]
            with numpy.errstate(over="ignore", invalid="ignore"):
                self.rows(first, first + step).blocks().write_floats(rows.reshape(len(rows), -1, self.block.block))
        return found
