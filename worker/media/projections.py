"""An encoder's projections, whole on every rank: matrices as stored, transposed, or with padded heads.

Integers with a scale per output stay integers; if a change would split groups, they become floats.
"""

from dataclasses import replace
from typing import TypeGuard

import numpy

from ...kernels.arrays import Array
from ...kernels.stored.parts import WeightPart
from ...kernels.stored.quantized import QuantizedPart
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
    return Linear(weights.packed_of("transposed", [piece], lambda matrix: plain(matrix).T), [], weights)


def patch_projection(weights: Weights, name: str, config: VisionConfig) -> Linear:
    """The projection from a patch's values to a row of the stream."""
    sides = [3, config.num_frames, config.patch_size, config.patch_size]
    if config.family.patch_dims == 4:
        sides.remove(config.num_frames)
    elif config.family.patch_dims == 2:
        sides = [config.patch_numbers]
    piece = CheckpointPiece(f"{name}.weight", (config.hidden_size, *sides))
    biases = [weights.read(f"{name}.bias", (config.hidden_size,))] if weights.has(f"{name}.bias") else []
    return Linear(weights.packed_of("patches", [piece], _flat), biases, weights)


def _flat(matrix: WeightPart) -> Array:
    rows = plain(matrix)
    return rows.reshape(len(rows), -1)


def to_heads(weights: Weights, names: tuple[str, ...], config: VisionConfig) -> Linear:
    """Queries, keys and values of all heads, padded."""
    hidden, outputs = config.hidden_size, 3 // len(names)
    shape, by_head, filled = (outputs * hidden, hidden), *_heads(config)

    def of_rows(rows: Array) -> Array:
        """Pad the rows of a matrix, of its scales or of a bias."""
        heads = rows.reshape(outputs, *by_head, *rows.shape[1:])
        padded = numpy.pad(heads, [(0, 0), (0, 0), filled, (0, 0)][: heads.ndim])
        return padded.reshape(-1, *rows.shape[1:])

    def widened(matrix: WeightPart) -> WeightPart:
        if not any(filled):
            return matrix
        if _has_a_scale_an_output(matrix):
            return replace(matrix, values=of_rows(matrix.values), scales=of_rows(matrix.scales))
        return of_rows(plain(matrix))

    biases = [of_rows(weights.read(f"{name}.bias", shape[:1])) for name in names if weights.has(f"{name}.bias")]
    pieces = [CheckpointPiece(f"{name}.weight", shape) for name in names]
    return Linear(weights.packed_of(_use(config), pieces, widened), biases, weights)


def from_heads(weights: Weights, name: str, config: VisionConfig) -> Linear:
    shape, (by_head, filled) = (config.hidden_size, config.hidden_size), _heads(config)

    def of_columns(rows: Array) -> Array:
        heads = rows.reshape(len(rows), *by_head)
        return numpy.pad(heads, [(0, 0), (0, 0), filled]).reshape(len(rows), -1)

    def widened(matrix: WeightPart) -> WeightPart:
        if not any(filled):
            return matrix
        if _has_a_scale_an_output(matrix):
            values = of_columns(matrix.values)
            return replace(matrix, values=values, group_size=values.shape[1])
        return of_columns(plain(matrix))

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


def plain(matrix: WeightPart) -> Array:
    return matrix if isinstance(matrix, numpy.ndarray) else matrix.dequantized()
