"""Who waits, and in which order: by priority, and within one first come, first served.

A preempted sequence keeps its place in that order, so it comes back before all that are younger. Long prompts stand
in a lane of their own, so that short ones can pass them while the gate for long ones is shut.
Knows nothing of blocks and steps.
"""

import heapq
from collections.abc import Iterable

from .request import Sequence

_Lane = list[tuple[tuple[int, ...], Sequence]]


class WaitingQueue:
    def __init__(self) -> None:
        self._short: _Lane = []
        self._long: _Lane = []
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def push(self, sequence: Sequence) -> None:
        heapq.heappush(self._lane(sequence), (sequence.rank, sequence))
        sequence.is_waiting = True
        self._num_waiting += 1

    def first(self, *, including_long: bool = True) -> Sequence | None:
        """The next in line; stays in the queue."""
        heads = [self._head(self._short)]
        if including_long:
            heads.append(self._head(self._long))
        return min(filter(None, heads), key=lambda sequence: sequence.rank, default=None)

    def pop(self, sequence: Sequence) -> None:
        """Take out what `first` gave."""
        heapq.heappop(self._lane(sequence))
        self.leave(sequence)

    def leave(self, sequence: Sequence) -> None:
        """It waits no more. It may still be named in its lane, and is skipped when its turn comes."""
        sequence.is_waiting = False
        self._num_waiting -= 1

    def _lane(self, sequence: Sequence) -> _Lane:
        return self._long if sequence.is_long else self._short

    def _head(self, lane: _Lane) -> Sequence | None:
        while lane and not lane[0][1].is_waiting:
            heapq.heappop(lane)
        return lane[0][1] if lane else None


def victim(running: Iterable[Sequence]) -> Sequence:
    """Who gives way when blocks run out: the lowest priority, and among those the youngest."""
    return max(running, key=lambda sequence: sequence.rank)
