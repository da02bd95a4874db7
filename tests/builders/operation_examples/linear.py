"""Examples for kernels/reference/products.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels import PackedWeight, pack


def inputs(seed: int) -> Iterator[tuple[Tensor, PackedWeight, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, out_features, in_features in ((1, 96, 56), (5, 31, 64), (33, 130, 72)):
        weight = torch.randn(out_features, in_features, generator=generator)
        bias = torch.randn(out_features, generator=generator) if rows > 1 else None
        yield torch.randn(rows, in_features, generator=generator), pack(weight), bias
