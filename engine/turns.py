"""Clients that have a sequence in one lane, in the order of their turns."""

import heapq

from .client import Client, Place
from .request import Sequence

_FEW = 16


class Turns:
    """Places change; a client is listed under one that is no later than its own, and anew when it comes up."""

    def __init__(self, *, is_long: bool) -> None:
        self._is_long = is_long
        self._heap: list[tuple[Place, Client]] = []
        self._listed: dict[Client, Place] = {}  # an entry of the heap that says otherwise is void

    def __len__(self) -> int:
        return len(self._listed)

    def note(self, client: Client) -> None:
        """Its place may be an earlier one than before."""
        if (sequence := client.lanes[self._is_long].first()) is not None:
            place = client.place(sequence)
            if client not in self._listed or place < self._listed[client]:
                self._list(place, client)

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
            if sequence is not None and client.place(sequence) == listed:
                return sequence
            heapq.heappop(self._heap)
            self.forget(client)
            self.note(client)
        return None

    def _list(self, place: Place, client: Client) -> None:
        self._listed[client] = place
        heapq.heappush(self._heap, (place, client))
        if len(self._heap) > 2 * len(self._listed) + _FEW:
            self._heap = [(place, client) for client, place in self._listed.items()]
            heapq.heapify(self._heap)
