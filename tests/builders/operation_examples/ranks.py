"""Examples for kernels/reference/ranks.py, made from a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from penstock.kernels.operands import ROOMS, PeerMemory

_ROWS = 8


def memory_of(rank: int, rooms: list[Tensor], flags: list[Tensor]) -> PeerMemory:
    """One rank's view of all ranks' bytes and flags, on the device where they are."""
    device = rooms[0].device
    addresses = (torch.tensor([each.data_ptr() for each in of], device=device) for of in (rooms, flags))
    rounds = torch.zeros(len(flags[0]), dtype=torch.int32, device=device)
    return PeerMemory(rank, *addresses, rounds, rooms[0].nbytes // ROOMS)


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


def norm_inputs(seed: int) -> Iterator[tuple[Tensor, PeerMemory, Tensor, Tensor, float]]:
    """A single rank, which waits for nobody."""
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 56), (7, 130)):
        part, stream = torch.randn(2, rows, width, generator=generator).unbind()
        _KEPT.append((torch.empty(ROOMS * 4 * rows * width, dtype=torch.uint8), torch.zeros(_ROWS, 1).int()))
        room, flags = _KEPT[-1]
        yield part, memory_of(0, [room], [flags]), stream, torch.rand(width, generator=generator), 1e-6


# Addresses keep nothing alive.
_KEPT: list[tuple[Tensor, Tensor]] = []
