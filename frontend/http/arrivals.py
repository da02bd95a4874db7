"""Wakes the tasks of an event loop whose requests have news: one call into the loop for all that have some at once.

News come from the thread that reads what a tree says, a step's deltas together. Knows nothing of requests.
"""

import asyncio
from collections import deque
from contextlib import suppress
from weakref import WeakKeyDictionary


class Arrivals:
    """One for each event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._noted: deque[Arrival] = deque()
        self._is_called = False

    def note(self, arrival: "Arrival") -> None:
        """From any thread."""
        self._noted.append(arrival)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_called = False  # before looking, so that what is noted from now on calls again
        while self._noted:
            self._noted.popleft().event.set()


class Arrival:
    """`notify` from any thread, `wait` in the loop that made it. News that nobody has looked at yet are told once."""

    __slots__ = ("_arrivals", "_is_noted", "event")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if (arrivals := _of_loops.get(loop)) is None:
            arrivals = _of_loops[loop] = Arrivals(loop)
        self._arrivals = arrivals
        self._is_noted = False
        self.event = asyncio.Event()

    def notify(self, request: object = None) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._arrivals.note(self)

    async def wait(self) -> None:
        await self.event.wait()
        self.event.clear()
        self._is_noted = False  # before its caller looks


_of_loops: "WeakKeyDictionary[asyncio.AbstractEventLoop, Arrivals]" = WeakKeyDictionary()
