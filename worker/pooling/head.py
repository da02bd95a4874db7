"""The layers behind a pooled row, in float32: products, activations and norms of one row at a time (`pooling.py`).

Each row is multiplied on its own, without a library that would choose an order of sums by how many rows there are.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy

from ...kernels.arrays import Array
from ...protocol.errors import ConfigError
from ...protocol.pooling.activations import ACTIVATIONS, known_activations
from ...protocol.pooling.form import HeadLayer, PoolingForm
from ..weights.files.checkpoint import Checkpoint
from ..weights.weights import Source

Layer = Callable[[Array], Array]


def read_head(form: PoolingForm, hidden_size: int, model_folder: Path, own: Source) -> list[Layer]:
    """Read the layers: those of other folders from there, the others from the model's `own` tensors."""
    width, layers = hidden_size * len(form.modes), []
    for layer in form.head:
        source = Checkpoint(model_folder / layer.folder) if layer.folder else own
        layers.append(_read(layer, width, source))
        width = layer.width_after(width)
    return layers


def _read(layer: HeadLayer, width: int, source: Source) -> Layer:
    if layer.is_unit_length:
        return _of_unit_length
    if layer.activation not in ACTIVATIONS:
        raise ConfigError(
            f"The activation {layer.activation!r} behind the model is not supported; {known_activations()} are."
        )
    activation = ACTIVATIONS[layer.activation]
    if not layer.weight:
        return activation
    is_norm = layer.epsilon is not None
    size = layer.size or width
    if layer.difference:
        weight = _difference(source, layer, (size, width))
        return lambda x: activation(_product(x, weight, None))
    weight = _exact(source, layer.weight, (width,) if is_norm else (size, width))
    bias = _exact(source, layer.bias, (size,)) if layer.bias and source.has(layer.bias) else None
    of_row = partial(_normed, epsilon=layer.epsilon or 0.0) if is_norm else _product
    return lambda x: activation(of_row(x, weight, bias))


def _difference(source: Source, layer: HeadLayer, shape: tuple[int, int]) -> Array:
    """One row of the matrix less another: [1, width]."""
    rows = [
        numpy.ascontiguousarray(source.read(layer.weight, shape, (0, row, row + 1))).astype(numpy.float32)
        for row in layer.difference
    ]
    return rows[0] if len(rows) == 1 else rows[0] - rows[1]


def _exact(source: Source, name: str, shape: tuple[int, ...]) -> Array:
    return numpy.ascontiguousarray(source.read(name, shape, None)).astype(numpy.float32)


def _product(x: Array, weight: Array, bias: Array | None) -> Array:
    product: Array = numpy.einsum("ij,j->i", weight, x)
    return product if bias is None else product + bias


def _normed(x: Array, weight: Array, bias: Array | None, epsilon: float) -> Array:
    wide = x.astype(numpy.float64)
    wide -= wide.mean()
    normed = (wide / math.sqrt(float((wide * wide).mean()) + epsilon)).astype(numpy.float32) * weight
    return normed if bias is None else normed + bias


def _of_unit_length(x: Array) -> Array:
    wide = x.astype(numpy.float64)
    return (wide / max(math.sqrt(float((wide * wide).sum())), 1e-12)).astype(numpy.float32)
