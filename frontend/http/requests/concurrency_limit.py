"""Limits how many answers are computed at once and how many requests wait for that; waiting clients take turns.

One client gets at most three quarters of the slots, so that others are always answered along with it.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from ..answers.errors import ApiError
from ..options import HttpOptions

_RETRY_SECONDS = 1
_KEPT = 4  # one slot in this many is kept from a client that has all others

Waiter = asyncio.Future[None]


class ConcurrencyLimit:
    def __init__(self, options: HttpOptions) -> None:
        self._free = options.max_requests
        self._most_each = options.max_requests - options.max_requests // _KEPT
        self._taken: Counter[Hashable] = Counter()  # by client
        self._most_waiting = options.max_queue
        self._queues: OrderedDict[Hashable, deque[Waiter]] = OrderedDict()  # by client, the next one first
        self.waiting = 0

    @asynccontextmanager
    async def one(self, client: Hashable) -> AsyncIterator[None]:
        """A slot for one answer, held while the context is open; raises 429 if too many requests wait already."""
        if self._may_take(client):
            self._take(client)
        else:
            await self._turn(client)
        try:
            yield
        finally:
            self._give_back(client)

    def _may_take(self, client: Hashable) -> bool:
        return self._free > 0 and self._taken[client] < self._most_each

    def _take(self, client: Hashable) -> None:
        self._free -= 1
        self._taken[client] += 1

    def _give_back(self, client: Hashable) -> None:
        self._free += 1
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
        self._hand_on()

    async def _turn(self, client: Hashable) -> None:
        if self.waiting >= self._most_waiting:
            self._make_room(client)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(waiter)
        self.waiting += 1
        try:
            await waiter
        except BaseException:
            if not waiter.cancelled() and waiter.exception() is None:  # the slot became free at the same moment
                self._give_back(client)
            elif waiter in self._queues.get(client, ()):
                self._remove(client, waiter)
            raise

    def _hand_on(self) -> None:
        """Give free slots to the clients whose turn it is; each then goes to the end of the queue."""
        while (client := next(filter(self._may_take, self._queues), None)) is not None:
            waiter = self._queues[client][0]
            self._remove(client, waiter)
            if client in self._queues:
                self._queues.move_to_end(client)
            if not waiter.done():  # or it has just been cancelled
                self._take(client)
                waiter.set_result(None)

    def _remove(self, client: Hashable, waiter: Waiter) -> None:
        queue = self._queues[client]
        queue.remove(waiter)
        self.waiting -= 1
        if not queue:
            del self._queues[client]

    def _make_room(self, client: Hashable) -> None:
        """Refuse the newest request of the client with the most waiting ones, which may be this client."""
        error = ApiError(
            429,
            f"{self.waiting:,} requests wait already, and max_queue={self._most_waiting:,}. Ask again later.",
            retry_after=_RETRY_SECONDS,
        )
        longest = max(self._queues, key=lambda each: len(self._queues[each]), default=client)
        if len(self._queues.get(longest, ())) <= len(self._queues.get(client, ())) + 1:
            raise error
        waiter = self._queues[longest][-1]
        self._remove(longest, waiter)
        waiter.set_exception(error)
