"""Examples for kernels/reference/sampling, made from a seed."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.reference.sampling.order import scan
from penstock.kernels.reference.sampling.race import DeviceMask
from penstock.kernels.sampling import NO_ROW, Columns, DeviceDraws, Draws, Histories, Scan


def logit_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((1, 515), (3, 9001), (5, 131)):
        yield (torch.randn(shape, generator=generator) * 3,)
    yield (torch.tensor([[0.0, -0.0, torch.inf, 1.0], [-torch.inf, -0.0, 0.0, -1.0]]),)


def most_likely_inputs(seed: int) -> Iterator[tuple[Tensor, int]]:
    for (logits,) in logit_inputs(seed):
        yield from ((logits, min(count, logits.shape[1])) for count in (1, 7, 300))
        yield (logits * 2).round() / 2, 3


def draw_inputs(seed: int) -> Iterator[tuple[Tensor, Scan, Draws]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 77), (40, 515), (9, 9001)):
        logits = torch.randn(rows, width, generator=generator) * 3
        kinds = torch.randint(0, 4, (rows,), generator=generator)
        top_k = torch.randint(1, 60, (rows,), generator=generator)
        reals = torch.rand(3, rows, generator=generator) * torch.tensor([[2.0], [0.99], [0.1]])
        wholes = torch.stack((top_k, *torch.randint(0, 2**40, (2, rows), generator=generator)))
        draws = Draws(kinds.numpy(), top_k.numpy(), Columns(*reals, *wholes), torch.arange(rows))
        yield logits, scan.reference(logits), draws


_LONGEST_HISTORY = 12


def race_inputs(seed: int) -> Iterator[tuple[Tensor, DeviceDraws, DeviceMask | None]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width, are_best in ((1, 77, False), (11, 515, False), (6, 515, True), (5, 2100, False)):
        logits = torch.randn(rows, width, generator=generator) * 3
        for row in range(0, rows, 3):  # many of them equal, some masked
            logits[row] = (logits[row] * 2).round() / 2
            logits[row, ::4] = -math.inf
        for row, value in ((4, math.nan), (6, math.inf)):
            if row < rows:
                logits[row, width // 2] = value
        logits[9:10] = -math.inf
        yield logits, _draws(rows, are_best, generator), _mask(rows, width, generator) if rows > 5 else None


def _draws(rows: int, are_best: bool, generator: torch.Generator) -> DeviceDraws:
    """There are more slots than rows, and one of the rows is not there."""
    count = rows + 3
    kinds = torch.randint(0, 1 if are_best else 4, (count,), generator=generator)
    top_k = torch.randint(1, 60, (count,), generator=generator)
    reals = torch.rand(3, count, generator=generator) * torch.tensor([[2.0], [1.1], [0.1]])
    wholes = torch.stack((top_k, *torch.randint(-(2**62), 2**62, (2, count), generator=generator)))
    slots = torch.randperm(count, generator=generator)[:rows].int()
    slots[7:8] = slots[2:3] = NO_ROW
    histories = torch.zeros(count, _LONGEST_HISTORY, dtype=torch.int32)
    return DeviceDraws(kinds, reals, wholes, histories, slots, torch.arange(rows, dtype=torch.int32) + 1, are_best)


def _mask(rows: int, width: int, generator: torch.Generator) -> DeviceMask:
    lines = torch.arange(rows, dtype=torch.int32)
    lines[1::2] = NO_ROW
    bits = torch.randint(-(2**31), 2**31, (rows, -(-width // 32)), generator=generator).int()
    bits[:1] = 0
    return DeviceMask(lines, bits)


def logprob_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width, num_top in ((1, 515, 5), (4, 9001, 0), (5, 131, 131)):
        logits = torch.randn(rows, width, generator=generator) * 3
        yield logits, torch.randint(0, width, (rows,), generator=generator), num_top
        yield (logits * 2).round() / 2, torch.zeros(rows, dtype=torch.int64), num_top


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
