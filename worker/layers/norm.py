"""Norms of the stream, and of the updates that parts add to it."""

from ...kernels.arrays import FLOAT32
from ...kernels.operands import Vector
from ..description.parts.norms import NormForm
from ..weights.weights import Rows, Weights


class Norm:
    """(x - mean) / √(mean((x - mean)²) + ε) × weight + bias; an RMS norm takes the mean as 0."""

    def __init__(
        self,
        weights: Weights,
        size: int,
        epsilon: float,
        form: NormForm,
        update_scale: float = 1.0,
        scale: float = 1.0,
        name: str = "weight",
    ) -> None:
        """`update_scale` multiplies the update that is added to the stream, `scale` the output."""
        self.ops = weights.ops
        self.weight = norm_vector(weights, name, (size,), form.is_stored_less_one, scale)  # [size]
        self.bias = norm_vector(weights, "bias", (size,), False, scale) if form.has_bias else None  # [size]
        self.has_mean = form.has_mean
        self.epsilon = epsilon
        self.update_scale = update_scale

    def __call__(self, stream: Rows, update: Rows | None = None) -> Rows:
        """Add the update, if any, to the stream; return the stream's norm, [T, size]."""
        if self.has_mean:
            return self.ops.add_layer_norm(stream, update, self.weight, self.bias, self.epsilon, self.update_scale)
        return self.ops.add_rms_norm(stream, update, self.weight, self.epsilon, self.update_scale)


class PlainStream:
    """Stands in for an absent norm: returns the stream itself, after adding the update."""

    def __init__(self, weights: Weights, update_scale: float) -> None:
        self.ops = weights.ops
        self.update_scale = update_scale

    def __call__(self, stream: Rows, update: Rows | None = None) -> Rows:
        return stream if update is None else self.ops.add(stream, update, self.update_scale)


def norm_vector(weights: Weights, name: str, shape: tuple[int, ...], is_less_one: bool, scale: float = 1.0) -> Vector:
    """A norm's weight or bias, times the scale. After adding 1 it stays float32: 16 bits would lose much of it."""
    exact = weights.read(name, shape).astype(FLOAT32)
    if is_less_one:
        return weights.ops.exact_vector((exact + 1.0) * scale)
    return weights.ops.vector(exact * scale)
