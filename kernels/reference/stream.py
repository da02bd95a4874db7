"""What joins a sublayer's update to the stream: the sum, in place, and its norm. Knows nothing of layers."""

from torch import Tensor

from ..registry import op
from .pointwise import rms_norm


@op()
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    """Adds the update, if any, to the stream; gives the stream's norm."""
    return rms_norm.reference(stream if update is None else stream.add_(update), weight, epsilon)
