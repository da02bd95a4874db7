"""Named pipes between each two ranks, through which they find each other and exchange a few numbers.

A pipe's content ends with the last process that has it open, so what a killed tree has left behind disturbs nobody.
"""

import os
import select
import time
from array import array
from contextlib import suppress
from pathlib import Path

from ...protocol.errors import EngineDeadError

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


def _opened(path: Path, sender: int, receiver: int) -> int:
    """The pipe's descriptor, for reading and writing: so nobody waits for the other end to be opened."""
    name = f"{path}-{sender}-{receiver}"
    with suppress(FileExistsError):
        os.mkfifo(name, 0o600)
    return os.open(name, os.O_RDWR | os.O_CLOEXEC)
