"""Examples for kernels/reference/stream.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight = torch.rand(width, generator=generator)
        yield stream, update, weight, 1e-6
        yield stream.clone(), None, weight, 1e-5
