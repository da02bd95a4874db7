"""An encoder's projections, whole on every rank: matrices as stored, transposed, or with padded heads.

Integers with a scale per output stay integers; if a change would split groups, they become floats.
"""

from dataclasses import replace
from typing import TypeGuard

import numpy
import torch.nn.functional as F
from torch import Tensor

from ...kernels.stored.parts import WeightPart
from ...kernels.stored.quantized import QuantizedPart
from ...kernels.torch.arrays import array_of, tensor_of
from ..description.vision_config import VisionConfig
from ..layers.linear import Linear
from ..weights.piece import CheckpointPiece
from ..weights.weights import Weights


def projection(weights: Weights, name: str, shape: tuple[int, int]) -> Linear:
    biases = [weights.read(f"{name}.bias", shape[:1])] if weights.has(f"{name}.bias") else []
    return Linear(weights.packed([CheckpointPiece(f"{name}.weight", shape)]), biases, weights)


def transposed_projection(weights: Weights, name: str, shape: tuple[int, int]) -> Linear:
    """A projection stored as [in, out], without a bias."""
    piece = CheckpointPiece(name, shape[::-1])
    return Linear(weights.packed_of("transposed", [piece], lambda matrix: array_of(plain(matrix).T)), [], weights)


def patch_projection(weights: Weights, name: str, config: VisionConfig) -> Linear:
    """The projection from a patch's values to a row of the stream."""
    sides = [3, config.num_frames, config.patch_size, config.patch_size]
    if config.family.patch_dims == 4:
        sides.remove(config.num_frames)
    elif config.family.patch_dims == 2:
        sides = [config.patch_numbers]
    piece = CheckpointPiece(f"{name}.weight", (config.hidden_size, *sides))
    biases = [weights.read(f"{name}.bias", (config.hidden_size,))] if weights.has(f"{name}.bias") else []
    return Linear(
        weights.packed_of("patches", [piece], lambda matrix: array_of(plain(matrix).flatten(1))), biases, weights
    )


def to_heads(weights: Weights, names: tuple[str, ...], config: VisionConfig) -> Linear:
    """Queries, keys and values of all heads, padded."""
    hidden, outputs = config.hidden_size, 3 // len(names)
    shape, by_head, filled = (outputs * hidden, hidden), *_heads(config)

    def of_rows(rows: Tensor) -> Tensor:
        return F.pad(rows.unflatten(0, (outputs, *by_head)), (0, 0, *filled)).flatten(0, 2)

    def widened(matrix: WeightPart) -> WeightPart:
        if not any(filled):
            return matrix
        if _has_a_scale_an_output(matrix):
            values, scales = (array_of(of_rows(tensor_of(each))) for each in (matrix.values, matrix.scales))
            return replace(matrix, values=values, scales=scales)
        return array_of(of_rows(plain(matrix)))

    biases = [
        array_of(
            F.pad(
                tensor_of(weights.read(f"{name}.bias", shape[:1])).unflatten(0, (outputs, *by_head)), filled
            ).flatten()
        )
        for name in names
        if weights.has(f"{name}.bias")
    ]
    pieces = [CheckpointPiece(f"{name}.weight", shape) for name in names]
    return Linear(weights.packed_of(_use(config), pieces, widened), biases, weights)


def from_heads(weights: Weights, name: str, config: VisionConfig) -> Linear:
    shape, (by_head, filled) = (config.hidden_size, config.hidden_size), _heads(config)

    def of_columns(rows: Tensor) -> Tensor:
        return F.pad(rows.unflatten(1, by_head), filled).flatten(1)

    def widened(matrix: WeightPart) -> WeightPart:
        if not any(filled):
            return matrix
        if _has_a_scale_an_output(matrix):
            values = array_of(of_columns(tensor_of(matrix.values)))
            return replace(matrix, values=values, group_size=values.shape[1])
        return array_of(of_columns(plain(matrix)))

    biases = [weights.read(f"{name}.bias", shape[:1])] if weights.has(f"{name}.bias") else []
    weight = weights.packed_of(_use(config), [CheckpointPiece(f"{name}.weight", shape)], widened)
    return Linear(weight, biases, weights)


def _heads(config: VisionConfig) -> tuple[tuple[int, int], tuple[int, int]]:
    """The stored number and size of heads, and the padding before and after each."""
    return (config.num_heads, config.head_dim), (0, config.padded_head_dim - config.head_dim)


def _use(config: VisionConfig) -> str:
    return f"heads of {config.padded_head_dim}"


def _has_a_scale_an_output(matrix: WeightPart) -> TypeGuard[QuantizedPart]:
    if not isinstance(matrix, QuantizedPart) or matrix.bits != 8:
        return False
    return matrix.zeros is None and matrix.order is None and matrix.scales.shape[1] == 1


def plain(matrix: WeightPart) -> Tensor:
    return tensor_of(matrix if isinstance(matrix, numpy.ndarray) else matrix.dequantized())
