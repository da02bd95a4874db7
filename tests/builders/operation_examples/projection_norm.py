"""Examples for kernels/reference/projection_norm.py, made from a seed."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.operands import ProjectionNorm

_SHAPES = ((1, 48, 16, math.inf), (7, 33, 11, 0.6), (40, 1024, 256, math.inf), (3, 640, 640, 2.0))


def _heads(seed: int) -> Iterator[tuple[Tensor, ProjectionNorm, torch.Generator]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, query, key, limit in _SHAPES:
        weights = (torch.rand(width, generator=generator) + 0.5 for width in (query, key))
        heads = torch.randn(tokens, query + 2 * key, generator=generator) * 3
        yield heads, ProjectionNorm(*weights, 2 * query, 2 * key, 1e-5, limit), generator


def square_inputs(seed: int) -> Iterator[tuple[Tensor, ProjectionNorm]]:
    for heads, norm, _ in _heads(seed):
        yield heads / 30, norm


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, ProjectionNorm]]:
    for heads, norm, generator in _heads(seed):
        yield heads, torch.rand(len(heads), 2, generator=generator) * 900 + 1, norm
