"""Examples for kernels/reference/step_inputs.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int, int, int]]:
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
