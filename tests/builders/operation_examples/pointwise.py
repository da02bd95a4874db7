"""Examples for kernels/reference/pointwise.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.operands import HeadLayout


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    for shape, weight_shape in (((1, 56), (56,)), ((7, 64), (64,)), ((5, 3, 24), (3, 24))):
        yield torch.randn(shape, generator=generator), torch.rand(weight_shape, generator=generator), 1e-6


def rotate_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, heads, head_dim in ((1, 3, 8), (9, 5, 24)):
        angles = torch.rand(tokens, 1, head_dim, generator=generator)
        yield torch.randn(tokens, heads, head_dim, generator=generator), angles.cos(), angles.sin()


def gate_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 34), (33, 352)):
        yield (torch.randn(shape, generator=generator) * 4,)


def pair_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    for [x] in gate_inputs(seed):
        yield x, x.flip(1) / 3


def gated_head_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, HeadLayout]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, queries, keys, head_dim in ((1, 4, 2, 32), (9, 3, 1, 48)):
        layout = HeadLayout(queries, keys, head_dim, rotates_pairs=False, is_gated=True)
        attended = torch.randn(tokens, queries * head_dim, generator=generator)
        yield attended, torch.randn(tokens, layout.num_projected * head_dim, generator=generator) * 4, layout


def embedding_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    for first in (0, 10, 40):
        yield torch.randint(0, 60, (13,), generator=generator), torch.randn(20, 24, generator=generator), first


def logit_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 515), (5, 131)):
        yield (torch.randn(shape, generator=generator) * 3,)
