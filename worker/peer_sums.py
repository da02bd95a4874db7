"""Sums over cards that read one another's memory: one launch for the little that a step of few rows adds up.

torch's symmetric memory: a rank copies its numbers to where all can read them, waits until all have, and adds up what
all of them wrote. Large sums go around by NCCL, which moves less. In what order ranks are added is torch's, so the
deterministic form does without. Knows nothing of layers.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

_LOG = logging.getLogger(__name__)
_ROOM = 512 << 10  # bytes of a sum; of more, every rank would read too much from every other
_ALIGNED = 16  # bytes that a thread reads at once
_SIZES = (2, 4, 8)  # of groups, for which torch has kernels that add in one order on all ranks


@dataclass(frozen=True)
class PeerSums:
    room: Tensor  # bytes that all ranks see
    group: str

    @classmethod
    def join(cls, device: torch.device, exchange: Callable[[list[int]], list[list[int]]]) -> "PeerSums | None":
        """Of a group that has met; all ranks get one, or none does. `exchange` gives everyone's numbers."""
        cards = [card for (card,) in exchange([device.index or 0])]
        if len(cards) not in _SIZES or not _all_see_each_other(cards):
            return None
        try:
            sums: PeerSums | None = cls(_shared_room(device), dist.group.WORLD.group_name)
        except RuntimeError as error:
            _LOG.warning("the cards' shared memory cannot be used, so NCCL adds up everything: %s", error)
            sums = None
        has_all = all(number for (number,) in exchange([sums is not None]))
        return sums if has_all else None

    def fits(self, x: Tensor) -> bool:
        return 0 < x.nbytes <= _ROOM and x.nbytes % _ALIGNED == 0 and x.dtype in (torch.bfloat16, torch.float32)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks of what `fits`."""
        place = self.room[: x.nbytes].view(x.dtype).view(x.shape)
        return torch.ops.symm_mem.one_shot_all_reduce_copy(place, x.contiguous(), "sum", self.group)


def _shared_room(device: torch.device) -> Tensor:
    import torch.distributed._symmetric_memory as symmetric_memory

    room = symmetric_memory.empty(_ROOM, dtype=torch.uint8, device=device)
    symmetric_memory.rendezvous(room, dist.group.WORLD)
    return room


def _all_see_each_other(cards: list[int]) -> bool:
    pairs = ((one, other) for one in cards for other in cards if one != other)
    return all(torch.cuda.can_device_access_peer(one, other) for one, other in pairs)
