"""Examples for kernels/reference/pointwise.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def sum_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130), (70, 3)):
        yield tuple(torch.randn(2, tokens, width, generator=generator).unbind())  # type: ignore[misc]


def gather_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width, count in ((1, 56, 1), (70, 130, 9), (9, 3, 9)):
        yield torch.randn(tokens, width, generator=generator), torch.randperm(tokens, generator=generator)[:count]


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight = torch.rand(width, generator=generator)
        yield stream, update, weight, 1e-6
        yield stream.clone(), None, weight, 1e-5
