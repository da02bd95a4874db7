"""Examples for kernels/reference/sampling/logprobs.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width, num_top in ((1, 515, 5), (4, 9001, 0), (5, 131, 131)):
        logits = torch.randn(rows, width, generator=generator) * 3
        yield logits, torch.randint(0, width, (rows,), generator=generator), num_top
        yield (logits * 2).round() / 2, torch.zeros(rows, dtype=torch.int64), num_top
