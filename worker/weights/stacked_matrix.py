"""Matrices of all experts stacked in one tensor, as floats or in MXFP4.

Reads return a view of the file; packing touches one matrix after another.
"""

from collections.abc import Iterator

from ...kernels.arrays import Array
from ...kernels.stored.mxfp4 import BLOCK, Mxfp4Part
from ...kernels.stored.parts import WeightPart
from ...records import dataclass
from ..description.parts.mixtures import Stack
from .piece import CheckpointPiece, Part
from .weights import Weights


@dataclass(frozen=True)
class StackedMatrix:
    """[A part of] a tensor with a matrix of every expert."""

    weights: Weights  # the source
    name: str
    shape: tuple[int, int, int]  # experts, outputs, inputs
    is_transposed: bool  # floats are [experts, inputs, outputs]
    part: Part  # of `shape`

    @property
    def is_mxfp4(self) -> bool:
        return self.weights.has(f"{self.name}_blocks")

    @property
    def pieces(self) -> list[CheckpointPiece]:
        """The pieces of its stored tensors."""
        experts, outputs, inputs = self.shape
        dim, first, last = self.part
        if self.is_mxfp4:
            part = (dim, first // BLOCK, last // BLOCK) if dim == 2 else self.part
            blocks = (experts, outputs, inputs // BLOCK)
            return [
                CheckpointPiece(f"{self.name}_blocks", (*blocks, BLOCK // 2), part),
                CheckpointPiece(f"{self.name}_scales", blocks, part),
            ]
        if self.is_transposed:
            return [CheckpointPiece(self.name, (experts, inputs, outputs), ((0, 2, 1)[dim], first, last))]
        return [CheckpointPiece(self.name, self.shape, self.part)]

    def matrices(self) -> Iterator[Array | Mxfp4Part]:
        """[outputs, inputs] for each expert in turn."""
        if self.is_mxfp4:
            codes, exponents = (self.weights.octets(*piece) for piece in self.pieces)
            yield from map(Mxfp4Part, codes, exponents)
            return
        [piece] = self.pieces
        for matrix in self.weights.read(*piece):
            yield matrix.T if self.is_transposed else matrix


def is_stacked(weights: Weights, stack: Stack) -> bool:
    """Whether experts are stacked here; experts converted to integers have separate tensors."""
    return weights.has(stack.gate_up) or weights.has(f"{stack.gate_up}_blocks")


def gate_and_up(matrix: Array | Mxfp4Part) -> list[WeightPart]:
    """Split an expert's matrix with alternating outputs into gate and up; the gate's come first."""
    if isinstance(matrix, Mxfp4Part):
        return [matrix.every_second(0), matrix.every_second(1)]
    return [matrix[0::2], matrix[1::2]]
