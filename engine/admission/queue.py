"""The waiting queue: ordered by priority; within one priority, clients take turns.

The next slot goes to the client with the fewest running sequences, and among equals to the one whose last turn is
longest ago. A new client goes behind all waiting clients except the one admitted last. So a client with one request
waits for at most one admission of each other client, however many requests those have, and all get an equal share of
the slots. With one client, it is first come, first served.

A client's own sequences are ordered by priority, then first come, first served. A preempted sequence keeps its
position, so it comes back before all younger ones. Long prompts wait in a lane of their own, so that short ones can
pass them while the limit of long ones is reached.
"""

import heapq
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from ..request import Sequence

# A client with nothing running waits this many steps; then the client with the most running sequences gives up a slot.
PATIENCE_STEPS = 8
# Each running sequence of a client delays its next one by this many admissions of other clients. That shares slots
# evenly, and bounds a client's wait however many of its sequences run.
_ADMISSIONS_A_SLOT = 64
# A heap is rebuilt when more of its entries are stale than waiting, and at least this many.
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
        """Remove a sequence. Its entry may stay in the heap until many are stale."""
        self._num_waiting -= 1
        if len(self._heap) > 2 * self._num_waiting + _FEW:
            self._heap = [entry for entry in dict.fromkeys(self._heap) if entry[1].is_waiting]
            heapq.heapify(self._heap)


class Client:
    """One client of the engine: its waiting sequences, how many of its sequences run, and when its last turn was."""

    __slots__ = ("__weakref__", "_on_slot_left", "lanes", "num_running", "num_waiting", "turn", "waits_since")

    def __init__(self, on_slot_left: "Callable[[Client], None]") -> None:
        """`on_slot_left` is called if more of the client's sequences wait when it gives back a slot."""
        self._on_slot_left = on_slot_left
        self.lanes = (Lane(), Lane())  # short prompts, long ones
        self.num_waiting = 0
        self.num_running = 0
        self.turn = 0  # two per admission: the even one for new clients, the odd one for the admitted client
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
        """The order of a lane's first sequence among those of other clients; the least is next."""
        set_back = 0 if sequence.decoding.holds_others(sequence) else 2 * _ADMISSIONS_A_SLOT * self.num_running
        return sequence.order[0], self.turn + set_back, sequence.order

    def take_slot(self) -> None:
        self.num_running += 1

    def leave_slot(self) -> None:
        self.num_running -= 1
        if self.num_waiting:
            self._on_slot_left(self)


class ClientHeap:
    """Clients with waiting sequences in one lane, ordered by the position of each one's first.

    Positions change. A client's entry is never later than its position, and is renewed when it comes up.
    """

    def __init__(self, *, is_long: bool) -> None:
        self._is_long = is_long
        self._heap: list[tuple[QueuePosition, Client]] = []
        self._listed: dict[Client, QueuePosition] = {}  # each client's valid entry; others are stale

    def __len__(self) -> int:
        return len(self._listed)

    def note(self, client: Client) -> None:
        """Note that the client's position may have become earlier."""
        if (sequence := client.lanes[self._is_long].first()) is not None:
            position = client.position(sequence)
            if client not in self._listed or position < self._listed[client]:
                self._list(position, client)

    def forget(self, client: Client) -> None:
        """Note that no sequence of the client waits in this lane any more."""
        self._listed.pop(client, None)

    def clear(self) -> None:
        self._heap, self._listed = [], {}

    def first(self) -> Sequence | None:
        while self._heap:
            listed, client = self._heap[0]
            if self._listed.get(client) != listed:
                heapq.heappop(self._heap)
                continue
            sequence = client.lanes[self._is_long].first()
            if sequence is not None and client.position(sequence) == listed:
                return sequence
            heapq.heappop(self._heap)
            self.forget(client)
            self.note(client)
        return None

    def _list(self, position: QueuePosition, client: Client) -> None:
        self._listed[client] = position
        heapq.heappush(self._heap, (position, client))
        if len(self._heap) > 2 * len(self._listed) + _FEW:
            self._heap = [(position, client) for client, position in self._listed.items()]
            heapq.heapify(self._heap)


class WaitingQueue:
    def __init__(self) -> None:
        self.num_steps = 0  # the scheduler's count
        self._clients: WeakValueDictionary[str, Client] = WeakValueDictionary()  # all with a request in the engine
        self._waiting: dict[Client, None] = {}  # those with a waiting sequence
        self._turns = (ClientHeap(is_long=False), ClientHeap(is_long=True))  # used while several clients wait
        self._num_waiting = 0
        self._num_admitted = 0

    def __len__(self) -> int:
        return self._num_waiting

    def client(self, name: str) -> Client:
        """The client of this name, which lives as long as its requests."""
        if (client := self._clients.get(name)) is None:
            client = self._clients[name] = Client(self._reorder)
        return client

    def push(self, sequence: Sequence) -> None:
        client = sequence.request.client
        client.lanes[sequence.is_long].push(sequence)
        sequence.is_waiting = True
        self._num_waiting += 1
        client.num_waiting += 1
        if client.num_waiting == 1:
            self._join(client)
        elif len(self._waiting) > 1:
            self._turns[sequence.is_long].note(client)

    def first(self, *, including_long: bool = True) -> Sequence | None:
        """The next sequence to admit; it stays in the queue."""
        if len(self._waiting) == 1:
            return next(iter(self._waiting)).first(including_long=including_long)
        heads = [turns.first() for turns in self._turns[: 1 + including_long]]
        return min(filter(None, heads), key=lambda sequence: sequence.client.position(sequence), default=None)

    def pop(self, sequence: Sequence) -> None:
        """Remove the sequence that `first` returned, which is being admitted."""
        self._num_admitted += 1
        self.end_turn(sequence.request.client)
        self.leave(sequence)

    def end_turn(self, client: Client) -> None:
        """Move the client behind all others after its turn."""
        client.turn = 2 * self._num_admitted + 1

    def leave(self, sequence: Sequence) -> None:
        """Remove a sequence from the queue."""
        sequence.is_waiting = False
        self._num_waiting -= 1
        client = sequence.request.client
        client.num_waiting -= 1
        lane = client.lanes[sequence.is_long]
        lane.leave()
        if not lane:
            self._turns[sequence.is_long].forget(client)
            if not client.num_waiting:
                self._quit(client)

    @property
    def may_be_overdue(self) -> bool:
        """A quick test: False in the usual case that the only waiting client has something running."""
        return len(self._waiting) > 1 or any(not client.num_running for client in self._waiting)

    def is_overdue(self, sequence: Sequence) -> bool:
        """Whether its client has waited long with nothing running."""
        client = sequence.request.client
        return client.num_running == 0 and self.num_steps - client.waits_since >= PATIENCE_STEPS

    def _join(self, client: Client) -> None:
        client.turn = max(client.turn, 2 * self._num_admitted)
        client.waits_since = self.num_steps
        self._waiting[client] = None
        if len(self._waiting) == 2:
            for each in self._waiting:
                self._note(each)
        elif len(self._waiting) > 2:
            self._note(client)

    def _quit(self, client: Client) -> None:
        del self._waiting[client]
        if len(self._waiting) == 1:
            for turns in self._turns:
                turns.clear()

    def _reorder(self, client: Client) -> None:
        """Reorder a client that has given back a slot, so it may now come before others."""
        if client.num_running == 0:
            client.waits_since = self.num_steps
        if len(self._waiting) > 1:
            self._note(client)

    def _note(self, client: Client) -> None:
        for turns in self._turns:
            turns.note(client)


def victim(running: Iterable[Sequence]) -> Sequence:
    """The sequence to preempt: the youngest of the client with the most running, at the lowest priority."""
    return max(running, key=lambda sequence: (sequence.order[0], sequence.client.num_running, sequence.order))
