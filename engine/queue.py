"""Who waits, and in which order: by priority, and within one, clients take turns.

The next position belongs to the client with the fewest running sequences; among equals to the one whose last turn is
longest ago. Who comes anew stands behind all that wait but the one who was served last. So a client with one request
waits for no more than one admission of each other client, however many requests those have, and all have an equal
share of the places. With one client, it is first come, first served.
"""

import heapq
from collections.abc import Iterable
from weakref import WeakValueDictionary

from .client import Client, QueuePosition
from .request import Sequence

_FEW = 16


class ClientHeap:
    """Clients that have a sequence in one lane, in the order of their turns.

    Places change; a client is listed under one that is no later than its own, and anew when it comes up.
    """

    def __init__(self, *, is_long: bool) -> None:
        self._is_long = is_long
        self._heap: list[tuple[QueuePosition, Client]] = []
        self._listed: dict[Client, QueuePosition] = {}  # an entry of the heap that says otherwise is void

    def __len__(self) -> int:
        return len(self._listed)

    def note(self, client: Client) -> None:
        """Its position may be an earlier one than before."""
        if (sequence := client.lanes[self._is_long].first()) is not None:
            position = client.position(sequence)
            if client not in self._listed or position < self._listed[client]:
                self._list(position, client)

    def forget(self, client: Client) -> None:
        """Nothing of it waits here any more."""
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


# A client with nothing running waits this many steps; then the client with the most running sequences gives up a slot.
PATIENCE_STEPS = 8


class WaitingQueue:
    def __init__(self) -> None:
        self.num_steps = 0  # as the scheduler counts them
        self._clients: WeakValueDictionary[str, Client] = WeakValueDictionary()  # that have a request here
        self._waiting: dict[Client, None] = {}  # those that wait
        self._turns = (ClientHeap(is_long=False), ClientHeap(is_long=True))  # kept while there are several
        self._num_waiting = 0
        self._num_admitted = 0

    def __len__(self) -> int:
        return self._num_waiting

    def client(self, name: str) -> Client:
        """The one of that name, for as long as a request of its own is here."""
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
        """The next in line; stays in the queue."""
        if len(self._waiting) == 1:
            return next(iter(self._waiting)).first(including_long=including_long)
        heads = [turns.first() for turns in self._turns[: 1 + including_long]]
        return min(filter(None, heads), key=lambda sequence: sequence.client.position(sequence), default=None)

    def pop(self, sequence: Sequence) -> None:
        """Take out what `first` gave, to be admitted."""
        self._num_admitted += 1
        self.end_turn(sequence.request.client)
        self.leave(sequence)

    def end_turn(self, client: Client) -> None:
        """It was served last."""
        client.turn = 2 * self._num_admitted + 1

    def leave(self, sequence: Sequence) -> None:
        """It waits no more."""
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
        """False in the usual case, where the only client that waits has something running: found out quickly."""
        return len(self._waiting) > 1 or any(not client.num_running for client in self._waiting)

    def is_overdue(self, sequence: Sequence) -> bool:
        """Its client has nothing running, and has waited long."""
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
        """The client has given back a slot, so it may come before others now."""
        if client.num_running == 0:
            client.waits_since = self.num_steps
        if len(self._waiting) > 1:
            self._note(client)

    def _note(self, client: Client) -> None:
        for turns in self._turns:
            turns.note(client)


def victim(running: Iterable[Sequence]) -> Sequence:
    """Who gives way: of the lowest priority, of the client with most of them running, the youngest."""
    return max(running, key=lambda sequence: (sequence.order[0], sequence.client.num_running, sequence.order))
