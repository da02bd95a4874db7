"""What one client makes the daemon hold, charged to it, and the wait until there is room for more.

A client whose requests run waits for its own: each gives back what it took. One that has none waits a while for others,
and then hears that there is no room. Lives on the daemon's event loop. Knows nothing of what is held.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ..requests.budget import Budget, BudgetError

# One that has nothing running waits so long for others to give something back.
_WAIT_SECONDS = 10.0
# Others don't say when they do, nor does a client that we don't listen to say that it has gone.
_LOOK_AGAIN_SECONDS = 0.1


class ClientBudget:
    def __init__(self, budget: Budget, client: str, has_running: Callable[[], bool], check: Callable[[], None]) -> None:
        """`check` raises where the client has gone."""
        self.client = client
        self._budget = budget
        self._charge = budget.charge(client)
        self._has_running = has_running
        self._check = check
        self._freed = asyncio.Event()

    @property
    def num_bytes(self) -> int:
        return self._charge.num_bytes

    @property
    def longest(self) -> int:
        """What is only being sent may take: the rest of its share is kept for requests that were read already."""
        return self._budget.per_client // 2

    def take(self, num_bytes: int) -> None:
        """Raises `BudgetError` where it doesn't fit."""
        self._charge.grow(num_bytes)

    def give(self, num_bytes: int) -> None:
        self._charge.shrink(num_bytes)
        self._freed.set()

    def close(self) -> None:
        """Nothing of the client is held any more."""
        self._charge.release()

    async def take_when_free(self, num_bytes: int) -> None:
        """Raises `BudgetError` where waiting is of no use."""
        await self._when(lambda: self.take(num_bytes))

    @asynccontextmanager
    async def taken(self, num_bytes: int) -> AsyncIterator[None]:
        """For as long as the context is open; raises `BudgetError` where waiting is of no use."""
        await self.take_when_free(num_bytes)
        try:
            yield
        finally:
            self.give(num_bytes)

    async def take_ahead(self, num_bytes: int) -> None:
        """For what is only being sent."""

        def take() -> None:
            if self.num_bytes + num_bytes > self.longest:
                raise BudgetError(
                    f"This client's requests take {self.num_bytes:,} bytes, and none of them ends. Read what is ready."
                )
            self.take(num_bytes)

        await self._when(take)

    async def _when(self, take: Callable[[], None]) -> None:
        deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while True:
            self._freed.clear()
            try:
                return take()
            except BudgetError:
                if not self._has_running() and asyncio.get_running_loop().time() >= deadline:
                    raise
            self._check()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    await self._freed.wait()
