"""The ranks of a CPU: processes of one machine, which exchange numbers through pipes and arrays through shared memory.

Named pipes are between each two ranks, through which they find each other too. A pipe's content ends with the last
process that has it open, so what a killed tree has left behind disturbs nobody.
Nobody here watches whether the others live: the front end does, and ends all of them with the first that dies.
"""

import os
import select
import time
from array import array
from contextlib import suppress
from pathlib import Path

import numpy

from ...kernels.arrays import Array
from ...kernels.cpu.library import Library
from ...kernels.cpu.shared_memory import Board
from ...protocol.errors import EngineDeadError
from ...records import dataclass
from .parallel import Parallel

_MINUTES = 10  # that ranks wait for one another


class Pipes:
    """Open until closed."""

    def __init__(self, rank: int, size: int, path: Path) -> None:
        self.rank = rank
        others = [other for other in range(size) if other != rank]
        self._to = [_opened(path, rank, other) for other in others]
        self._from = {other: _opened(path, other, rank) for other in others}

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """All ranks' numbers, equally many of each, in the order of the ranks."""
        # Never empty: some callers only want to wait for the others.
        octets = array("q", [*numbers, self.rank]).tobytes()
        for pipe in self._to:
            os.write(pipe, octets)  # a pipe takes far more than is ever on its way
        deadline = time.monotonic() + 60 * _MINUTES
        found = {other: self._received(other, len(octets), deadline) for other in self._from} | {self.rank: numbers}
        return [found[rank] for rank in sorted(found)]

    def close(self) -> None:
        for pipe in (*self._to, *self._from.values()):
            os.close(pipe)

    def _received(self, other: int, count: int, deadline: float) -> list[int]:
        readable = select.poll()
        readable.register(self._from[other], select.POLLIN)
        if not readable.poll(max(0, 1000 * (deadline - time.monotonic()))):
            raise EngineDeadError(
                f"Rank {self.rank} has waited {_MINUTES} minutes for rank {other}, which has not come as far. It may "
                "be stopped, or read its weights from a much slower disk. Start the model again."
            )
        return array("q", os.read(self._from[other], count)).tolist()[:-1]


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


def _opened(path: Path, sender: int, receiver: int) -> int:
    """The pipe's descriptor, for reading and writing: so nobody waits for the other end to be opened."""
    name = f"{path}-{sender}-{receiver}"
    with suppress(FileExistsError):
        os.mkfifo(name, 0o600)
    return os.open(name, os.O_RDWR | os.O_CLOEXEC)
