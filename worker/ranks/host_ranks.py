"""The ranks of a CPU: processes of one machine, which exchange numbers through pipes and arrays through shared memory.

Nobody here watches whether the others live: the front end does, and ends all of them with the first that dies.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy

from ...kernels.arrays import Array
from ...kernels.cpu.library import Library
from ...kernels.cpu.shared_memory import Board
from .parallel import Parallel
from .pipes import Pipes


@dataclass(frozen=True, kw_only=True)
class HostRanks(Parallel):
    """Sums are added in the order of the ranks, so that all of them get the same bits."""

    pipes: Pipes
    board: Board

    @classmethod
    def meet(cls, rank: int, size: int, path: Path) -> "HostRanks":
        """Meet the other ranks at a path in a folder that only this tree can write."""
        pipes = Pipes(rank, size, path)
        return cls(rank, size, pipes=pipes, board=Board(rank, size, pipes.exchange, lambda _: pipes.exchange([])))

    def use_kernels(self, library: Library) -> None:
        """From now on wait for one another in a kernel, which takes less time than a pipe."""
        self.board.meet = library.function("penstock_meet")

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        return self.pipes.exchange(numbers)

    def all_reduce(self, x: Array) -> Array:
        total = numpy.ascontiguousarray(x)
        self.board.all_reduce(total)
        return total

    def all_gather(self, x: Array, total: int) -> Array:
        padded = numpy.pad(x, ((0, 0), (0, self._padding(x, total))))
        parts = zip(self.board.all_gather(padded), self._widths(total), strict=True)
        return numpy.concatenate([part[:, :width] for part, width in parts], -1)

    def broadcast(self, x: Array) -> None:
        self.board.broadcast(numpy.asarray(x))  # a CPU's tensors are arrays, too

    def leave(self) -> None:
        self.pipes.close()
