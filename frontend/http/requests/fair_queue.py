"""Fair queuing for work that is done one at a time: short work hardly waits, and long work doesn't wait forever.

A waiter's number is the progress made when it came plus the amount of its own work; the least number is next. So short
work goes before long work that came a little earlier. A queue belongs to one event loop.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    def __init__(self) -> None:
        self._progress = 0.0
        self._is_taken = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()

    @asynccontextmanager
    async def one(self, amount: float) -> AsyncIterator[None]:
        """A turn, held while the context is open. `amount` is in any unit, the same for all."""
        if self._is_taken:
            await self._wait(self._progress + amount)
        self._is_taken = True
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, number: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._count), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same moment
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Pass the turn to the next waiter. It stays taken meanwhile, so that no newcomer gets it first."""
        self._is_taken = False
        while self._waiting and not self._is_taken:
            number, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._progress = max(self._progress, number)
                self._is_taken = True
                turn.set_result(None)
