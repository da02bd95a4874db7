"""Examples for kernels/reference/ranks.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor


def sum_inputs(seed: int) -> Iterator[tuple[list[Tensor]]]:
    """Two ranks' parts and three ranks': a row, some, and more than one thread adds up."""
    generator = torch.Generator().manual_seed(seed)
    for ranks, rows, width in ((2, 1, 56), (3, 7, 130), (2, 40, 1000)):
        yield (list(torch.randn(ranks, rows, width, generator=generator)),)


def gather_inputs(seed: int) -> Iterator[tuple[list[Tensor]]]:
    """Shares of a vocabulary, of which the first may be smaller by one."""
    generator = torch.Generator().manual_seed(seed)
    for rows, *widths in ((1, 28, 28), (7, 43, 43, 44), (40, 65, 66)):
        yield ([torch.randn(rows, width, generator=generator) for width in widths],)


def token_inputs(seed: int) -> Iterator[tuple[list[Tensor]]]:
    """Tokens that only the first rank knows; also more of them than pass at once."""
    generator = torch.Generator().manual_seed(seed)
    for ranks, rows in ((2, 1), (3, 9), (2, 9000)):
        own = torch.randint(150_000, (rows, 2), generator=generator)
        yield ([own, *(torch.zeros_like(own) for _ in range(ranks - 1))],)
