"""One of those who ask, as the engine sees them: what of theirs waits, how much of it runs, and when their turn was.

Within a client the order is by priority, and within one first come, first served. A preempted sequence keeps
its place, so it comes back before all that are younger. Long prompts stand in a lane of their own, so that short ones
can pass them while the gate for long ones is shut.
"""

import heapq
from collections.abc import Callable

from .request import Sequence

# Each running sequence of a client puts it so many admissions of others back. So places are shared out evenly, and yet
# nobody waits for more than so many, whatever of its own goes on.
_ADMISSIONS_A_SLOT = 64
# A lane is swept when more of it has left than waits, and not for fewer than that.
_FEW = 16

QueuePosition = tuple[int, int, tuple[int, ...]]  # priority, turn, order: unique


class Lane:
    """Sequences of one client that wait, in order."""

    __slots__ = ("_heap", "_num_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, ...], Sequence]] = []
        self._num_waiting = 0

    def __bool__(self) -> bool:
        return self._num_waiting > 0

    def push(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (sequence.order, sequence))
        self._num_waiting += 1

    def first(self) -> Sequence | None:
        heap = self._heap
        while heap and not heap[0][1].is_waiting:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def leave(self) -> None:
        """One of them waits no more. It may still be named here; what many have left is given back at once."""
        self._num_waiting -= 1
        if len(self._heap) > 2 * self._num_waiting + _FEW:
            self._heap = [entry for entry in dict.fromkeys(self._heap) if entry[1].is_waiting]
            heapq.heapify(self._heap)


class Client:
    __slots__ = ("__weakref__", "_on_slot_left", "lanes", "num_running", "num_waiting", "turn", "waits_since")

    def __init__(self, on_slot_left: "Callable[[Client], None]") -> None:
        """`on_slot_left` hears of each place among the running that it has left while more of it waits."""
        self._on_slot_left = on_slot_left
        self.lanes = (Lane(), Lane())  # short prompts, long ones
        self.num_waiting = 0
        self.num_running = 0
        self.turn = 0  # of the two that an admission has: the first for who came since, the second for who was admitted
        self.waits_since = 0  # the step since which it waits and has nothing running

    def first(self, *, including_long: bool) -> Sequence | None:
        short = self.lanes[False].first()
        if not (including_long and self.lanes[True]):
            return short
        long = self.lanes[True].first()
        if long is None:
            return short
        return long if short is None or long.order < short.order else short

    def position(self, sequence: Sequence) -> QueuePosition:
        """Where a sequence that is first in its lane stands among those of other clients; the least is next."""
        set_back = 0 if sequence.decoding.holds_others(sequence) else 2 * _ADMISSIONS_A_SLOT * self.num_running
        return sequence.order[0], self.turn + set_back, sequence.order

    def take_slot(self) -> None:
        self.num_running += 1

    def leave_slot(self) -> None:
        self.num_running -= 1
        if self.num_waiting:
            self._on_slot_left(self)
