"""Examples for kernels/reference/pointwise.py, made from a seed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.operands import PlacedRows


def sum_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, float, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width, scale, factor in ((1, 56, 1.0, 1.0), (7, 130, 0.22, 1.0), (70, 3, 1.0, 1.0), (9, 70, 1.0, 0.06)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        yield stream, update, scale, factor


def part_norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, part, parts in ((1, 56, 3), (7, 13, 5), (70, 64, 1)):
        total, x = torch.randn(2, tokens, part * parts, generator=generator).unbind()
        yield total, x, torch.rand(part, generator=generator), 1e-5


def gather_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width, count in ((1, 56, 1), (70, 130, 9), (9, 3, 9)):
        yield torch.randn(tokens, width, generator=generator), torch.randperm(tokens, generator=generator)[:count]


def placed_inputs(seed: int) -> Iterator[tuple[Tensor, PlacedRows, int]]:
    """None, some and all of the tokens; parts of the rows other than the first."""
    generator = torch.Generator().manual_seed(seed)
    for tokens, width, count, parts in ((1, 56, 1, 1), (70, 130, 9, 3), (9, 3, 9, 2), (4, 16, 0, 1)):
        chosen = torch.randperm(tokens, generator=generator)[:count].sort().values
        kept = torch.randn(20, parts * width, generator=generator)
        placed = PlacedRows(kept, chosen, torch.randint(20, (count,), generator=generator))
        yield torch.randn(tokens, width, generator=generator), placed, parts - 1


def norm_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight = torch.rand(width, generator=generator)
        yield stream, update, weight, 1e-6, 1.0
        yield stream.clone(), None, weight, 1e-5, 1.0
        yield stream.clone(), update, weight, 1e-6, 0.22


def layer_norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor | None, float, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130), (33, 5)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight, bias = torch.rand(2, width, generator=generator).unbind()
        yield stream + 2, update, weight, bias, 1e-5, 1.0
        yield stream.clone(), None, weight, None, 1e-6, 1.0
        yield stream * 7, update, weight, None, 1e-5, 0.22
