"""Examples for kernels/reference/sampling/choice.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.reference.sampling.choice import Draws
from penstock.kernels.reference.sampling.order import Scan, scan


def draw_inputs(seed: int) -> Iterator[tuple[Tensor, Scan, Draws]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 77), (40, 515), (9, 9001)):
        logits = torch.randn(rows, width, generator=generator) * 3
        kinds = torch.randint(0, 4, (rows,), generator=generator)
        top_k = torch.randint(1, 60, (rows,), generator=generator)
        reals = torch.rand(3, rows, generator=generator) * torch.tensor([[2.0], [0.99], [0.1]])
        wholes = torch.stack((top_k, *torch.randint(0, 2**40, (2, rows), generator=generator)))
        yield logits, scan.reference(logits), Draws(kinds.numpy(), top_k.numpy(), reals, wholes, torch.arange(rows))
