"""Tensor parallelism: which rank this is, what its share is, and the collectives between the ranks.

gloo between CPUs, NCCL between GPUs, on the loopback interface; the ranks find each other through a file. Sums are
added in the order of the ranks, so that a row's bits don't depend on the number of rows, unless the options prefer
speed: then NCCL chooses its own order, and kernels may do small all-reduces themselves (`peers`).
"""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ...kernels.cpu.library import Library
from ...kernels.cpu.shared_memory import Board
from ...kernels.operands import PeerMemory
from ...kernels.torch.arrays import array_of
from .peer_memory import peer_memory

_TIMEOUT = timedelta(minutes=10)
_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Parallel:
    """One rank's view of all of them."""

    rank: int = 0
    size: int = 1
    board: Board | None = None  # shared memory of ranks on one machine
    is_ordered: bool = True  # add in the order of the ranks, whatever that costs
    device: torch.device = _HOST  # device of the collectives' tensors
    peers: PeerMemory | None = None  # if cards see each other's memory

    @classmethod
    def join(
        cls,
        rank: int,
        size: int,
        rendezvous: Path,
        device: torch.device,
        is_ordered: bool = True,
        sees_peers: bool = False,
    ) -> "Parallel":
        """Meet the other ranks, if there are any, at a file in a folder that only this tree can write.

        `sees_peers`: they may add up in each other's memory if they can.
        """
        ranks = cls(rank, size, is_ordered=is_ordered, device=device)
        if size > 1:
            ranks.meet(rendezvous)
            if sees_peers:
                return replace(ranks, peers=peer_memory(rank, device, ranks.exchange))
        return ranks

    def meet(self, rendezvous: Path) -> None:
        # The only sockets of a tree that are not ipc://; never on another interface than the loopback.
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
        is_gpu = self.device.type == "cuda"
        dist.init_process_group(
            "nccl" if is_gpu else "gloo",
            store=dist.FileStore(str(rendezvous), self.size),
            rank=self.rank,
            world_size=self.size,
            device_id=self.device if is_gpu else None,
            timeout=_TIMEOUT,
        )

    def through_memory(self, library: Library) -> "Parallel":
        """The same ranks, communicating through shared memory."""
        if self.size == 1:
            return self
        return replace(self, board=Board(self.rank, self.size, self.exchange, library.function("penstock_meet")))

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """All ranks' numbers, in the order of the ranks."""
        own = torch.tensor(numbers + [0], device=self.device)  # never empty: some callers only want to synchronize
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, own)
        return [each.tolist()[:-1] for each in found]

    def span(self, total: int) -> tuple[int, int]:
        """First and last + 1 of this rank's share of `total` things; the shares differ by one at most."""
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.size == 1:
            return x
        if self.size == 2 or not self.is_ordered:  # a + b needs no order; the collective may add in place
            dist.all_reduce(x)
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous())
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        """[rows, total] from every rank's [rows, share], in the order of the ranks."""
        if self.size == 1:
            return x
        widest = -(-total // self.size)
        padded = torch.nn.functional.pad(x, (0, widest - x.shape[-1])).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        shares = [Parallel(rank, self.size).span(total) for rank in range(self.size)]
        return torch.cat([part[..., : last - first] for part, (first, last) in zip(parts, shares, strict=True)], -1)

    def broadcast(self, x: Tensor) -> Tensor:
        """Rank 0's `x`, in place, on every rank."""
        if self.board is not None:
            self.board.broadcast(array_of(x))
            return x
        if self.size > 1:
            dist.broadcast(x, 0)
        return x

    def leave(self) -> None:
        """End the group, if this rank ever joined one."""
        if dist.is_initialized():
            dist.destroy_process_group()
