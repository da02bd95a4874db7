"""Examples for kernels/reference/pointwise.py, projection_norm.py and step_inputs.py, made from a seed."""

import math
from collections.abc import Iterator
from typing import Any, get_args

import torch
from torch import Tensor

from penstock.kernels.operands import Activation, HeadLayout, PlacedRows, ProjectionNorm


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


def add_norm_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight = torch.rand(width, generator=generator)
        yield stream, update, weight, 1e-6, 1.0
        yield stream.clone(), None, weight, 1e-5, 1.0
        yield stream.clone(), update, weight, 1e-6, 0.22


def add_layer_norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor | None, float, float]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, width in ((1, 56), (7, 130), (33, 5)):
        stream, update = torch.randn(2, tokens, width, generator=generator).unbind()
        weight, bias = torch.rand(2, width, generator=generator).unbind()
        yield stream + 2, update, weight, bias, 1e-5, 1.0
        yield stream.clone(), None, weight, None, 1e-6, 1.0
        yield stream * 7, update, weight, None, 1e-5, 0.22


_PROJECTIONS = ((1, 48, 16, math.inf), (7, 33, 11, 0.6), (40, 1024, 256, math.inf), (3, 640, 640, 2.0))


def _projections(seed: int) -> Iterator[tuple[Tensor, ProjectionNorm, torch.Generator]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, query, key, limit in _PROJECTIONS:
        weights = (torch.rand(width, generator=generator) + 0.5 for width in (query, key))
        heads = torch.randn(tokens, query + 2 * key, generator=generator) * 3
        yield heads, ProjectionNorm(*weights, 2 * query, 2 * key, 1e-5, limit), generator


def square_inputs(seed: int) -> Iterator[tuple[Tensor, ProjectionNorm]]:
    for heads, norm, _ in _projections(seed):
        yield heads / 30, norm


def projection_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, ProjectionNorm]]:
    for heads, norm, generator in _projections(seed):
        yield heads, torch.rand(len(heads), 2, generator=generator) * 900 + 1, norm


def step_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int, int, int]]:
    generator = torch.Generator().manual_seed(seed)
    for counts, spare_rows, spare_tokens in (([1], 0, 0), ([3, 1, 40, 1], 3, 5), ([1] * 9 + [700], 0, 100)):
        rows, block_size = len(counts), 16
        histories = torch.randint(0, 1000, (rows + 2, 800), generator=generator, dtype=torch.int32)
        tables = torch.randint(0, 5000, (rows + 2, 50), generator=generator, dtype=torch.int32)
        slots = torch.cat((torch.randperm(rows + 2, generator=generator)[:rows], torch.full((spare_rows,), -1)))
        starts = torch.randint(0, 99, (rows + spare_rows,), generator=generator)
        query_starts = torch.tensor([0, *counts, *[0] * spare_rows]).cumsum(0)
        total = sum(counts) + spare_tokens
        yield slots.int(), starts.int(), query_starts.int(), histories, tables, block_size, total, 50 - rows
