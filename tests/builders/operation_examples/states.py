"""Examples for kernels/reference/states.py, made from a seed."""

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.states import DeltaHeads, LayerStates, Segments

# (channels, width)
_CONVOLUTIONS = ((24, 4), (150, 3), (16, 2), (33, 8), (5, 1))
# (key heads, value heads, key_dim, value_dim)
_HEADS = ((2, 4, 16, 16), (1, 3, 24, 40), (2, 2, 7, 33), (1, 2, 64, 64))


def segments_of(rows: list[list[tuple[int, int, int]]]) -> Segments:
    """From each row's segments: tokens, the state that is read, the state that is written."""
    starts, of_rows = [0], [0]
    for row in rows:
        for count, _, _ in row:
            starts.append(starts[-1] + count)
        of_rows.append(of_rows[-1] + len(row))
    reads, writes = ([segment[which] for row in rows for segment in row] for which in (1, 2))
    return Segments(*(torch.tensor(each, dtype=torch.int32) for each in (starts, reads, writes, of_rows)))


def drawn_segments(seed: int, num_rows: int, most_tokens: int = 6) -> tuple[Segments, int]:
    """Rows that begin with nothing, go on in place, read a checkpoint, leave one on the way; and how many states."""
    draw, state = random.Random(seed), iter(range(4 * num_rows))
    rows = []
    for number in range(num_rows):
        read = next(state)
        begins = [(read, read), (-1, read), (read, next(state))][(number + seed) % 3]
        row = [(draw.randint(1, most_tokens), *begins)]
        if draw.random() < 0.5:
            row.append((draw.randint(1, most_tokens), begins[1], next(state)))
        rows.append(row)
    return segments_of(rows), 4 * num_rows


def convolution_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for number, (channels, width) in enumerate(_CONVOLUTIONS):
        segments, num_states = drawn_segments(seed + number, 1 + number % 3)
        states = LayerStates(torch.randn(num_states, width - 1, channels, generator=generator), torch.empty(0))
        bias = torch.randn(channels, generator=generator) if number % 2 else None
        x = torch.randn(int(segments.starts[-1]), channels, generator=generator)
        weight = torch.randn(channels, width, generator=generator)
        yield x, weight, bias, "silu" if number % 3 != 1 else None, states, segments


def delta_heads(
    num_key_heads: int, num_value_heads: int, key_dim: int, value_dim: int, generator: torch.Generator
) -> DeltaHeads:
    """With decays as checkpoints have them, A from 0.01 to 16."""
    log_decay = (torch.rand(num_value_heads, generator=generator) * 16 + 0.01).log()
    step_bias = torch.randn(num_value_heads, generator=generator) - 2
    return DeltaHeads(num_key_heads, num_value_heads, key_dim, value_dim, log_decay, step_bias)


def delta_inputs(
    heads: DeltaHeads, segments: Segments, num_states: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, DeltaHeads, LayerStates, Segments]:
    tokens = int(segments.starts[-1])
    states = torch.randn(num_states, heads.num_value_heads, heads.key_dim, heads.value_dim, generator=generator)
    b, a = (torch.randn(tokens, heads.num_value_heads, generator=generator) * 2 for _ in range(2))
    x = torch.randn(tokens, heads.width, generator=generator)
    return x, b, a, heads, LayerStates(torch.empty(0), states / 8), segments


def net_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for number, shape in enumerate(_HEADS):
        segments, num_states = drawn_segments(seed + number, 1 + number % 3)
        yield delta_inputs(delta_heads(*shape, generator), segments, num_states, generator)


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, float, int]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, heads, size in ((1, 1, 128), (7, 3, 24), (40, 4, 33), (3, 1, 100)):
        x, gate = (torch.randn(tokens, heads * size, generator=generator) * 3 for _ in range(2))
        yield x, gate, torch.rand(size, generator=generator) + 0.5, 1e-6, heads
