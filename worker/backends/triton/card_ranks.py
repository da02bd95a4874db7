"""The ranks of GPUs, which communicate through NCCL and find each other through a file.

Sums are added in the order of the ranks, so that a row's bits don't depend on the number of rows, unless the options
prefer speed: then NCCL chooses its own order, and sums of few rows may be added in the cards' own memory (`sums`).
"""

import logging
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ....kernels.triton.launch.switches import FIRST_LOGITS
from ....records import dataclass
from ...ranks.contact import require_contact
from ...ranks.interfaces import interface_of
from ...ranks.parallel import Parallel
from ..torch.gloo_ranks import meeting_store
from .peer_sums import PeerSums, peer_sums

_LOG = logging.getLogger(__name__)
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class CardRanks(Parallel):
    device: torch.device
    is_ordered: bool  # add in the order of the ranks, whatever that costs
    sums: PeerSums | None = None  # of few rows, if cards see each other's memory

    @classmethod
    def meet(
        cls,
        rank: int,
        size: int,
        path: Path,
        device: torch.device,
        is_ordered: bool,
        sees_peers: bool,
        per_node: int = 0,
        address: str = "",
    ) -> "CardRanks":
        """Meet the other ranks at a file in a folder that only this tree can write.

        If `sees_peers`, they may add up in each other's memory, if the cards allow it. `address` is this machine's, if
        there are several with `per_node` ranks each.
        """
        # Unlike a tree's ipc:// sockets these have addresses: on one machine, use the loopback interface only.
        if not address:
            os.environ["NCCL_SOCKET_IFNAME"] = "lo"
            store: dist.Store = dist.FileStore(str(path), size)
        else:
            is_chosen = "NCCL_SOCKET_IFNAME" in os.environ  # by the user, maybe of a network without this address
            if not is_chosen:
                _use_interface(address)
            store = meeting_store(path, rank, "cuda")
            require_contact(store, rank, size, per_node, None if is_chosen else address)
        dist.init_process_group(
            "nccl",
            store=store,
            rank=rank,
            world_size=size,
            device_id=device,
            timeout=_TIMEOUT,
        )
        ranks = cls(rank, size, per_node, device=device, is_ordered=is_ordered)
        return replace(ranks, sums=peer_sums(rank, device, ranks.exchange)) if sees_peers else ranks

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        own = torch.tensor(numbers + [0], device=self.device)  # never empty: some callers only want to synchronize
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, own)
        return [each.tolist()[:-1] for each in found]

    def all_reduce(self, x: Tensor) -> Tensor:
        if self.sums is not None and self.sums.holds(x):
            return self.sums.all_reduce(x)
        if self.size == 2 or not self.is_ordered:  # a + b needs no order; the collective may add in place
            dist.all_reduce(x)
            return x
        parts = self._parts(x.contiguous())
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        own = torch.nn.functional.pad(x, (0, self._padding(x, total))).contiguous()
        if not (parts := self._parts(own, FIRST_LOGITS.is_on)):
            return x
        return torch.cat([part[..., :width] for part, width in zip(parts, self._widths(total), strict=True)], -1)

    def broadcast(self, x: Tensor) -> None:
        dist.broadcast(x, 0)

    def leave(self) -> None:
        dist.destroy_process_group()

    def _parts(self, x: Tensor, first_alone: bool = False) -> list[Tensor]:
        """Every rank's `x`; nothing on others than the first, if that one gets them alone."""
        parts = [torch.empty_like(x) for _ in range(self.size)] if self.rank == 0 or not first_alone else []
        dist.gather(x, parts or None) if first_alone else dist.all_gather(parts, x)
        return parts


def _use_interface(address: str) -> None:
    """Have NCCL use the interface of this machine's address."""
    if (name := interface_of(address)) is not None:
        os.environ["NCCL_SOCKET_IFNAME"] = f"={name}"
    else:
        _LOG.warning(
            "No interface has this machine's address %s, so NCCL chooses one itself. If that is the wrong one, set "
            "NCCL_SOCKET_IFNAME to the right one's name (`ip address`).",
            address,
        )
