"""Memory of cards that read and write one another's, for the little that a step of few rows adds up over ranks.

It is torch's symmetric memory: every rank allocates as much, and learns where the others' lies. Where cards don't see
each other, there is none, and NCCL adds up everything. Knows nothing of how sums are made.
"""

import logging
from collections.abc import Callable

import torch
import torch.distributed as dist

from ..kernels.peer_memory import ROOMS, PeerMemory

_LOG = logging.getLogger(__name__)
_ROWS = 64  # beyond, what every rank would read of every other costs more than NCCL's ways around
_ROOM_BYTES = 1 << 20
_FLAGS_BYTES = 4096

Exchange = Callable[[list[int]], list[list[int]]]  # everyone's numbers, in the order of the ranks


def peer_memory(rank: int, device: torch.device, exchange: Exchange) -> PeerMemory | None:
    """Of a group that has met; all ranks get it, or none does."""
    cards = [card for (card,) in exchange([device.index or 0])]
    if 4 * _ROWS * len(cards) > _FLAGS_BYTES or not _all_see_each_other(cards):
        return None
    try:
        memory: PeerMemory | None = _shared(rank, device)
    except RuntimeError as error:
        _LOG.warning("the cards' shared memory cannot be used, so NCCL adds up everything: %s", error)
        memory = None
    # Nobody says that it is there before everyone has emptied the flags.
    return memory if all(is_there for (is_there,) in exchange([memory is not None])) else None


def _shared(rank: int, device: torch.device) -> PeerMemory:
    import torch.distributed._symmetric_memory as symmetric_memory

    own = symmetric_memory.empty(_FLAGS_BYTES + ROOMS * _ROOM_BYTES, dtype=torch.uint8, device=device)
    own[:_FLAGS_BYTES].zero_()
    torch.cuda.synchronize(device)
    shared = symmetric_memory.rendezvous(own, dist.group.WORLD)
    _KEPT.append(own)
    flags = torch.tensor(shared.buffer_ptrs, dtype=torch.int64, device=device)
    rounds = torch.zeros(_ROWS, dtype=torch.int32, device=device)
    return PeerMemory(rank, flags + _FLAGS_BYTES, flags, rounds, _ROOM_BYTES)


_KEPT: list[torch.Tensor] = []  # addresses keep nothing alive


def _all_see_each_other(cards: list[int]) -> bool:
    pairs = ((one, other) for one in cards for other in cards if one != other)
    return all(torch.cuda.can_device_access_peer(one, other) for one, other in pairs)
