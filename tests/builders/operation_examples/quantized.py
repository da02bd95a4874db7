"""Examples for kernels/reference/quantized.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def row_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 56), (7, 130)):
        x = torch.randn(rows, width, generator=generator) * 8
        yield (x,)
        yield (x.half(),)
    odd = x.clone()
    odd[1], odd[2, 3], odd[3, 5], odd[4] = 0, torch.inf, torch.nan, x[4] * 1e-36
    yield (odd,)
