"""Examples for kernels/reference/sampling/race.py, made from a seed."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.reference.sampling.race import NO_ROW, DeviceDraws, DeviceMask

_LONGEST = 12


def inputs(seed: int) -> Iterator[tuple[Tensor, DeviceDraws, DeviceMask | None]]:
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
    """Of more slots than rows, and one of the rows is not there."""
    count = rows + 3
    kinds = torch.randint(0, 1 if are_best else 4, (count,), generator=generator)
    top_k = torch.randint(1, 60, (count,), generator=generator)
    reals = torch.rand(3, count, generator=generator) * torch.tensor([[2.0], [1.1], [0.1]])
    wholes = torch.stack((top_k, *torch.randint(-(2**62), 2**62, (2, count), generator=generator)))
    slots = torch.randperm(count, generator=generator)[:rows].int()
    slots[7:8] = slots[2:3] = NO_ROW
    histories = torch.zeros(count, _LONGEST, dtype=torch.int32)
    return DeviceDraws(kinds, reals, wholes, histories, slots, torch.arange(rows, dtype=torch.int32) + 1, are_best)


def _mask(rows: int, width: int, generator: torch.Generator) -> DeviceMask:
    lines = torch.arange(rows, dtype=torch.int32)
    lines[1::2] = NO_ROW
    bits = torch.randint(-(2**31), 2**31, (rows, -(-width // 32)), generator=generator).int()
    bits[:1] = 0
    return DeviceMask(lines, bits)
