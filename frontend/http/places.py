"""How many answers are computed at once, and how many requests may wait for that. Knows nothing of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .errors import ApiError
from .options import HttpOptions

_RETRY_SECONDS = 1


class Places:
    def __init__(self, options: HttpOptions) -> None:
        self._free = asyncio.Semaphore(options.max_requests)
        self._most_waiting = options.max_queue
        self.waiting = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Held as long as the answer takes; 429 at once where too many wait already."""
        if self._free.locked() and self.waiting >= self._most_waiting:
            raise ApiError(
                429,
                f"{self.waiting:,} requests wait already, and max_queue={self._most_waiting:,}. Ask again later.",
                retry_after=_RETRY_SECONDS,
            )
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()
