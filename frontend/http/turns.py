"""Turns at something that one can do at a time, by how much each wants to do: who wants little hardly waits.

Fair queuing: who comes is numbered by where the work has got to and how much it wants, and the least number is next.
So a short one goes before long ones that came a little earlier, and no long one waits forever. One event loop's.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    def __init__(self) -> None:
        self._progress = 0.0
        self._is_taken = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()

    @asynccontextmanager
    async def one(self, amount: float) -> AsyncIterator[None]:
        """`amount` is in whatever unit all use."""
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
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """It stays taken where somebody waits, so that nobody who comes goes before them."""
        self._is_taken = False
        while self._waiting and not self._is_taken:
            number, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._progress = max(self._progress, number)
                self._is_taken = True
                turn.set_result(None)
