"""A sum over ranks that joins the stream, and its norm. Knows nothing of how ranks meet."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..peer_memory import ROOMS, PeerMemory
from ..registry import op
from .stream import add_rms_norm

_ROWS = 8


def memory_of(rank: int, rooms: list[Tensor], flags: list[Tensor]) -> PeerMemory:
    """One rank's view of all ranks' bytes and flags, on the device where they are."""
    device = rooms[0].device
    addresses = (torch.tensor([each.data_ptr() for each in of], device=device) for of in (rooms, flags))
    rounds = torch.zeros(len(flags[0]), dtype=torch.int32, device=device)
    return PeerMemory(rank, *addresses, rounds, rooms[0].nbytes // ROOMS)


def _inputs(seed: int) -> Iterator[tuple[Tensor, PeerMemory, Tensor, Tensor, float]]:
    """Of one rank, which waits for nobody."""
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 56), (7, 130)):
        part, stream = torch.randn(2, rows, width, generator=generator).unbind()
        _KEPT.append((torch.empty(ROOMS * 4 * rows * width, dtype=torch.uint8), torch.zeros(_ROWS, 1).int()))
        room, flags = _KEPT[-1]
        yield part, memory_of(0, [room], [flags]), stream, torch.rand(width, generator=generator), 1e-6


# Addresses keep nothing alive.
_KEPT: list[tuple[Tensor, Tensor]] = []


@op(_inputs)
def add_norm_of_ranks(part: Tensor, peers: PeerMemory, stream: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Adds all ranks' parts to the stream, in place; gives its norm. Here of a group of one: kernels see others."""
    if peers.size > 1:
        raise ValueError(f"one process has one rank's part; there are {peers.size} ranks")
    return add_rms_norm.reference(stream, part, weight, epsilon)
