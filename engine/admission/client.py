"""One client of the engine: its waiting sequences, how many of its sequences run, and when its last turn was.

A client's sequences are ordered by priority, then first come, first served. A preempted sequence keeps its position,
so it comes back before all younger ones. Long prompts wait in a lane of their own, so that short ones can pass them
while no more long ones are admitted.
"""

import heapq
from collections.abc import Callable

from ..request import Sequence

# Each running sequence of a client delays its next one by this many admissions of other clients. That shares slots
# evenly, and bounds how long a client waits however much of its own is running.
_ADMISSIONS_A_SLOT = 64
# A lane's heap is rebuilt when more of its entries are stale than waiting, and at least this many.
_FEW = 16

QueuePosition = tuple[int, int, tuple[int, ...]]  # priority, turn, order: unique


class Lane:
    """The waiting sequences of one client, in order."""

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
        """One of its sequences no longer waits. Its entry may stay in the heap until many are stale."""
        self._num_waiting -= 1
        if len(self._heap) > 2 * self._num_waiting + _FEW:
            self._heap = [entry for entry in dict.fromkeys(self._heap) if entry[1].is_waiting]
            heapq.heapify(self._heap)


class Client:
    __slots__ = ("__weakref__", "_on_slot_left", "lanes", "num_running", "num_waiting", "turn", "waits_since")

    def __init__(self, on_slot_left: "Callable[[Client], None]") -> None:
        """`on_slot_left` is called when the client gives back a slot while more of its sequences wait."""
        self._on_slot_left = on_slot_left
        self.lanes = (Lane(), Lane())  # short prompts, long ones
        self.num_waiting = 0
        self.num_running = 0
        self.turn = 0  # two per admission: the even one for clients that came since, the odd for the one admitted
        self.waits_since = 0  # the step since which it has been waiting with nothing running

    def first(self, *, including_long: bool) -> Sequence | None:
        short = self.lanes[False].first()
        if not (including_long and self.lanes[True]):
            return short
        long = self.lanes[True].first()
        if long is None:
            return short
        return long if short is None or long.order < short.order else short

    def position(self, sequence: Sequence) -> QueuePosition:
        """Orders the first sequence of a lane among those of other clients; the least is next."""
        set_back = 0 if sequence.decoding.holds_others(sequence) else 2 * _ADMISSIONS_A_SLOT * self.num_running
        return sequence.order[0], self.turn + set_back, sequence.order

    def take_slot(self) -> None:
        self.num_running += 1

    def leave_slot(self) -> None:
        self.num_running -= 1
        if self.num_waiting:
            self._on_slot_left(self)
