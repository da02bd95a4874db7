"""The ranks of CPUs on several machines, which exchange arrays through Gloo.

They find one another through a file that is kept alike on all machines (`protocol/ranks/meeting_file.py`). Sums are
added in the order of the ranks, as on one machine, so they have the same bits.
"""

import os
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

from ....kernels.arrays import Array
from ....kernels.cpu.copied_memory import CopiedMemory
from ....protocol.errors import ConfigError
from ....records import dataclass
from ...ranks.contact import require_contact
from ...ranks.parallel import Parallel

# That ranks wait for one another: longer than for machines to join, which is told better.
TIMEOUT = timedelta(minutes=20)


@dataclass(frozen=True, kw_only=True)
class GlooRanks(Parallel):
    group: Any  # torch's ProcessGroupGloo

    @classmethod
    def meet(cls, rank: int, size: int, per_node: int, path: Path, address: str) -> "GlooRanks":
        """Meet the other ranks at a file, and listen for them at this machine's address until all have come."""
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch's own use of it
        options._timeout = TIMEOUT
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        store = meeting_store(path, rank, "cpu")
        require_contact(store, rank, size, per_node, address)
        group = dist.ProcessGroupGloo(store, rank, size, options)
        ranks = cls(rank, size, per_node, group=group)
        ranks.exchange([])
        _stop_listening()
        return ranks

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        own = numpy.array([*numbers, self.rank], numpy.int64)  # never empty: some callers only want to wait
        return [each.tolist()[:-1] for each in self.gathered(own)]

    def gathered(self, x: Array) -> list[Array]:
        own = _octets(x)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self.group.allgather([parts], [own]).wait()
        return [part.numpy().view(x.dtype).reshape(x.shape) for part in parts]

    def gathered_at_first(self, x: Array, widest: int) -> list[Array] | None:
        own = _octets(numpy.pad(x, ((0, 0), (0, widest - x.shape[1]))))
        parts = [torch.empty_like(own) for _ in range(self.size)] if self.rank == 0 else []
        given = dist.GatherOptions()
        given.rootRank = 0
        self.group.gather([parts] if self.rank == 0 else [], [own], given).wait()
        if self.rank != 0:
            return None
        return [part.numpy().view(x.dtype).reshape(len(x), widest) for part in parts]

    def all_reduce(self, x: Array) -> Array:
        total, *others = self.gathered(x)
        with numpy.errstate(all="ignore"):  # infinite numbers are a matter of whoever reads the sum
            for part in others:
                total += part
        return total

    def all_gather(self, x: Array, total: int) -> Array:
        padded = numpy.pad(x, ((0, 0), (0, self._padding(x, total))))
        parts = zip(self.gathered(padded), self._widths(total), strict=True)
        return numpy.concatenate([part[:, :width] for part, width in parts], -1)

    def broadcast(self, x: Array) -> None:
        own = numpy.asarray(x)  # a CPU's tensors are arrays, too
        octets = _octets(own)
        given = dist.BroadcastOptions()
        given.rootRank, given.rootTensor = 0, 0
        self.group.broadcast([octets], given).wait()
        if self.rank != 0:
            own[...] = octets.numpy().view(own.dtype).reshape(own.shape)

    def memory(self, num_areas: int, area_bytes: int) -> CopiedMemory:
        return CopiedMemory(self, num_areas, area_bytes)


def meeting_store(path: Path, rank: int, kind: str) -> dist.Store:
    """The file by which ranks of several machines meet; refuses one that computes on another kind of device."""
    store = dist.FileStore(str(path))
    store.set_timeout(TIMEOUT)
    store.set(f"kind of {rank}", kind)
    if (first := store.get("kind of 0").decode()) != kind:
        raise ConfigError(
            f"Rank {rank} computes on {kind}, and rank 0 on {first}. Machines of one tree have one kind of device: "
            "device='cpu' on node 0 has all of them compute on processors."
        )
    return store


def _octets(x: Array) -> torch.Tensor:
    """The array's bytes, so that any kind of number can be sent."""
    return torch.from_numpy(numpy.ascontiguousarray(x).reshape(-1).view(numpy.uint8))


def _stop_listening() -> None:
    """Close this process's TCP listeners: all ranks are connected, and Gloo would take in strangers for ever."""
    with open(os.devnull, "rb") as nothing:
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
                is_tcp = each.family in (socket.AF_INET, socket.AF_INET6)
                if is_tcp and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    os.dup2(nothing.fileno(), int(name), inheritable=False)
