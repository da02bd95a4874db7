"""What joins a sublayer's update to the stream: the sum, in place, and its norm. Knows nothing of layers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..registry import op
from .pointwise import rms_norm


def _inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight = torch.rand(width, generator=generator)
        yield stream, update, weight, 1e-6
        yield stream.clone(), None, weight, 1e-5


@op(_inputs)
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    """Adds the update, if any, to the stream; gives the stream's norm."""
    return rms_norm.reference(stream if update is None else stream.add_(update), weight, epsilon)
