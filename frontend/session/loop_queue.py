"""Passes items from other threads to an event loop, with one call into the loop for all that come at once."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LoopQueue(Generic[Item]):
    """`take` is called in the loop, with each item in its order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Item], object]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[Item] = deque()
        self._is_called = False

    def put(self, item: Item) -> None:
        """From any thread; without effect once the loop has ended."""
        self._items.append(item)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take_all)

    def _take_all(self) -> None:
        self._is_called = False  # before looking, so that what is put from now on calls again
        while self._items:
            self._take(self._items.popleft())
