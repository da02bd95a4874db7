"""Tensor parallelism as everything that loads and computes sees it: which rank this is, of how many, and what the ranks
exchange.

`HostRanks` (host_ranks.py) are processes on a CPU, `GlooRanks` (worker/backends/torch/gloo_ranks.py) those on CPUs of
several machines, `CardRanks` (worker/backends/triton/card_ranks.py) those of GPUs.
"""

from typing import Any

from ...kernels.cpu.rank_memory import RankMemory
from ...kernels.cpu.shared_memory import SharedMemory
from ...records import dataclass


@dataclass(frozen=True)
class Parallel:
    """One rank's view of all of them; here of a rank that is alone, or whose share is all that is asked for."""

    rank: int = 0
    size: int = 1
    per_node: int = 0  # ranks on each machine; 0: all are on one

    @property
    def on_this_node(self) -> range:
        """The ranks of this machine, which share its memory."""
        if not self.per_node:
            return range(self.size)
        first = self.rank - self.rank % self.per_node
        return range(first, first + self.per_node)

    def span(self, total: int) -> tuple[int, int]:
        """First and last + 1 of this rank's share of `total` things; the shares differ by one at most."""
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """All ranks' numbers, equally many of each, in the order of the ranks."""
        return [numbers]

    def all_reduce(self, x: Any) -> Any:
        """The sum over all ranks, which may be `x` itself."""
        return x

    def all_gather(self, x: Any, total: int) -> Any:
        """[rows, total] from every rank's [rows, share], in the order of the ranks; of logits, which rank 0 alone
        draws from, others may have their own share only."""
        return x

    def broadcast(self, x: Any) -> None:
        """Rank 0's `x`, in place, on every rank."""

    def memory(self, num_areas: int, area_bytes: int) -> RankMemory:
        """Memory in which the kernels of all ranks find one another's rows."""
        return SharedMemory(self.rank, self.size, self.exchange, num_areas, area_bytes)

    def leave(self) -> None:
        """Part from the other ranks."""

    def _padding(self, x: Any, total: int) -> int:
        """Columns that make this rank's share as wide as the widest."""
        return -(-total // self.size) - int(x.shape[-1])

    def _widths(self, total: int) -> list[int]:
        """The widths of the ranks' shares."""
        spans = (Parallel(rank, self.size).span(total) for rank in range(self.size))
        return [last - first for first, last in spans]
