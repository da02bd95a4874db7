"""Examples for kernels/reference/pointwise.py, made from a seed."""

from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from penstock.kernels.operands import Activation, HeadLayout


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, weight_shape in (((1, 56), (56,)), ((7, 64), (64,)), ((5, 3, 24), (3, 24))):
        yield torch.randn(shape, generator=generator), torch.rand(weight_shape, generator=generator), 1e-6


def rotate_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, heads, head_dim in ((1, 3, 8), (9, 5, 24)):
        angles = torch.rand(tokens, 1, head_dim, generator=generator)
        yield torch.randn(tokens, heads, head_dim, generator=generator), angles.cos(), angles.sin()


def layer_norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None, float]]:
    generator = torch.Generator().manual_seed(seed)
    for x, weight, epsilon in norm_inputs(seed):
        yield x + 3, weight, None, epsilon
        yield x * 9, weight, torch.randn(weight.shape, generator=generator), epsilon


def pair_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 34), (33, 352)):
        yield *torch.randn(2, *shape, generator=generator).unbind(), 0  # type: ignore[misc]
    yield torch.randn(5, 34, generator=generator), torch.randn(5, 102, generator=generator), 2


def gated_head_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, HeadLayout]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, queries, keys, head_dim in ((1, 4, 2, 32), (9, 3, 1, 48)):
        layout = HeadLayout(queries, keys, head_dim, rotates_pairs=False, is_gated=True)
        attended = torch.randn(tokens, queries * head_dim, generator=generator)
        yield attended, torch.randn(tokens, layout.num_projected * head_dim, generator=generator) * 4, layout


def activation_inputs(seed: int) -> Iterator[tuple[Tensor, Activation]]:
    """Also what is far from 0, and what is nothing beside 1."""
    generator = torch.Generator().manual_seed(seed)
    for activation in get_args(Activation):
        for shape in ((1, 34), (33, 352)):
            yield torch.randn(shape, generator=generator) * 4, activation
        yield torch.tensor([[-100.0, -9.0, -5.7, -5.6, -1e-6, 0.0, 1e-6, 0.9, 5.6, 5.7, 9.0, 100.0]]), activation


def cap_inputs(seed: int) -> Iterator[tuple[Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for (logits,) in logit_inputs(seed):
        yield logits, 1.7
        yield logits * 30, 30.0
    yield torch.randn(2, 20_001, generator=generator), 5.0


def embedding_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, int, float]]:
    generator = torch.Generator().manual_seed(seed)
    for first, scale in ((0, 1.0), (10, 1.0), (40, 12.0)):
        yield torch.randint(0, 60, (13,), generator=generator), torch.randn(20, 24, generator=generator), first, scale


def logit_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 515), (5, 131)):
        yield (torch.randn(shape, generator=generator) * 3,)
