"""Examples for kernels/reference/sampling/order.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def logit_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 515), (3, 9001), (5, 131)):
        yield (torch.randn(shape, generator=generator) * 3,)
    yield (torch.tensor([[0.0, -0.0, torch.inf, 1.0], [-torch.inf, -0.0, 0.0, -1.0]]),)


def most_likely_inputs(seed: int) -> Iterator[tuple[Tensor, int]]:
    for (logits,) in logit_inputs(seed):
        yield from ((logits, min(count, logits.shape[1])) for count in (1, 7, 300))
        yield (logits * 2).round() / 2, 3
