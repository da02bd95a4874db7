"""Sums of few rows over cards that see each other's memory, by torch's one-shot all-reduce.

Each rank's part lies in memory that all can read (torch's symmetric memory), and every rank adds all parts up itself,
in one launch that a graph can replay. It is used if all ranks have it and a trial comes out right; larger sums, and all
of them elsewhere, are NCCL's.
"""

import logging
from collections.abc import Callable
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from ....kernels.triton.launch.switches import PEER_MEMORY
from ....records import dataclass

_LOG = logging.getLogger(__name__)
_ROOM_BYTES = 512 << 10  # beyond this, every rank reading all others costs more than NCCL's algorithms
_ALIGNED = 16  # bytes
_DTYPES = (torch.float32, torch.bfloat16)  # that torch's kernel adds

Exchange = Callable[[list[int]], list[list[int]]]  # everyone's numbers, in the order of the ranks


@dataclass(frozen=True)
class PeerSums:
    room: Tensor  # uint8, at the same place on all ranks
    group: str

    def holds(self, x: Tensor) -> bool:
        return x.dtype in _DTYPES and 0 < x.nbytes <= self.room.nbytes and x.nbytes % _ALIGNED == 0

    def all_reduce(self, x: Tensor) -> Tensor:
        room = self.room[: x.nbytes].view(x.dtype).view(x.shape)
        return torch.ops.symm_mem.one_shot_all_reduce_copy(room, x.contiguous(), "sum", self.group)


def peer_sums(rank: int, device: torch.device, exchange: Exchange) -> PeerSums | None:
    """For a group that has joined; all ranks get it, or none does."""
    cards = [card for (card,) in exchange([device.index or 0])]
    if not PEER_MEMORY.is_on or not _all_see_each_other(cards):
        return None
    try:
        sums: PeerSums | None = _shared(device)
    except (RuntimeError, AttributeError, ImportError) as error:
        _LOG.warning("the cards' shared memory cannot be used, so NCCL adds up everything: %s", error)
        sums = None
    # Nobody waits in a trial for a rank that isn't in it.
    are_all_there = _agreed(sums is not None, exchange)
    if sums is None or not are_all_there:
        return None
    is_right = _adds_up(sums, rank, len(cards), device)
    if not is_right:
        _LOG.warning("sums in the cards' shared memory come out wrong, so NCCL adds up everything")
    return sums if _agreed(is_right, exchange) else None


def _agreed(mine: bool, exchange: Exchange) -> bool:
    return all(theirs for (theirs,) in exchange([mine]))


def _shared(device: torch.device) -> PeerSums:
    import torch.distributed._symmetric_memory as symmetric_memory

    group = cast(dist.ProcessGroup, dist.group.WORLD)
    room = symmetric_memory.empty(_ROOM_BYTES, dtype=torch.uint8, device=device)
    symmetric_memory.rendezvous(room, group)
    return PeerSums(room, group.group_name)


def _adds_up(sums: PeerSums, rank: int, size: int, device: torch.device) -> bool:
    """Whether sums come out right, one right behind another."""
    parts = [torch.full((4, 256), step + rank + 1.0, dtype=torch.bfloat16, device=device) for step in range(3)]
    found = [sums.all_reduce(part) for part in parts]
    return all(bool((each == sum(range(1, size + 1)) + step * size).all()) for step, each in enumerate(found))


def _all_see_each_other(cards: list[int]) -> bool:
    pairs = ((one, other) for one in cards for other in cards if one != other)
    return all(torch.cuda.can_device_access_peer(one, other) for one, other in pairs)
