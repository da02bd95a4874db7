"""Wakes the tasks of an event loop whose requests have news: one call into the loop for all that have some at once.

News come from the thread that reads what a tree says, a step's deltas together. Knows nothing of requests.
"""

import asyncio
from weakref import WeakKeyDictionary

from ..session.loop_queue import LoopQueue


class Arrival:
    """`notify` from any thread, `wait` in the loop that made it. News that nobody has looked at yet are told once."""

    __slots__ = ("_arrivals", "_is_noted", "event")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if (arrivals := _of_loops.get(loop)) is None:
            arrivals = _of_loops[loop] = LoopQueue(loop, asyncio.Event.set)
        self._arrivals = arrivals
        self._is_noted = False
        self.event = asyncio.Event()

    def notify(self, request: object = None) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._arrivals.put(self.event)

    async def wait(self) -> None:
        await self.event.wait()
        self.event.clear()
        self._is_noted = False  # before its caller looks


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue[asyncio.Event]] = WeakKeyDictionary()
