"""Tensor parallelism as everything that loads and computes sees it: which rank this is, of how many, and what the ranks
exchange.

`HostRanks` (host_ranks.py) are processes on a CPU, `CardRanks` (worker/backends/triton/card_ranks.py) those of GPUs.
"""

from typing import Any

from ...records import dataclass


@dataclass(frozen=True)
class Parallel:
    """One rank's view of all of them; here of a rank that is alone, or whose share is all that is asked for."""

    rank: int = 0
    size: int = 1

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
        """[rows, total] from every rank's [rows, share], in the order of the ranks."""
        return x

    def broadcast(self, x: Any) -> None:
        """Rank 0's `x`, in place, on every rank."""

    def leave(self) -> None:
        """Part from the other ranks."""

    def _padding(self, x: Any, total: int) -> int:
        """Columns that make this rank's share as wide as the widest."""
        return -(-total // self.size) - int(x.shape[-1])

    def _widths(self, total: int) -> list[int]:
        """The widths of the ranks' shares."""
        spans = (Parallel(rank, self.size).span(total) for rank in range(self.size))
        return [last - first for first, last in spans]
