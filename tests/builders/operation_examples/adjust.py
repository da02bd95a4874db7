"""Examples for kernels/reference/sampling/adjust.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.reference.sampling.adjust import Histories


def _history_inputs(seed: int) -> Iterator[tuple[Tensor, Histories]]:
    generator = torch.Generator().manual_seed(seed)
    for width, rows in ((5, [0, 2]), (300, [3, 1, 0]), (64, [1])):
        lengths = torch.randint(2, 40, (len(rows),), generator=generator)
        tokens = torch.randint(0, width, (6, 64), generator=generator, dtype=torch.int32)
        logits = torch.randn(4, width, generator=generator)
        slots = torch.randperm(6, generator=generator)[: len(rows)]
        yield logits, Histories(torch.tensor(rows), tokens, slots, lengths, int(lengths.max()))


def repetition_inputs(seed: int) -> Iterator[tuple[Tensor, Histories, Tensor]]:
    for logits, histories in _history_inputs(seed):
        yield logits, histories, torch.linspace(0.8, 1.3, len(histories.rows))


def generated_inputs(seed: int) -> Iterator[tuple[Tensor, Histories, Tensor, Tensor, Tensor]]:
    for logits, histories, penalty in repetition_inputs(seed):
        yield logits, histories, histories.lengths // 3, penalty, penalty - 1


def mask_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for width, rows in ((5, [0, 2]), (300, [3]), (64, [1, 0])):
        bits = torch.randint(-(2**31), 2**31, (len(rows), -(-width // 32)), generator=generator)
        yield torch.randn(4, width, generator=generator), torch.tensor(rows), bits.to(torch.int32)
