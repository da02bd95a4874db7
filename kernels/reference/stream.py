"""The residual stream: an update is added to it in place, normed, and rows are taken out of it."""

from torch import Tensor

from ..registry import op
from .pointwise import rms_norm


@op(tolerance=0)
def add(stream: Tensor, update: Tensor) -> Tensor:
    """Adds the update to the stream; gives the stream."""
    return stream.add_(update)


@op(tolerance=0)
def gather_rows(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of `x` with these indices."""
    return x[indices]


@op()
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    """Adds the update, if any, to the stream; gives the stream's norm."""
    return rms_norm.reference(stream if update is None else stream.add_(update), weight, epsilon)
