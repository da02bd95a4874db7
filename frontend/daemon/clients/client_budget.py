"""The bytes that the daemon holds for one client, and how the client waits until there is room for more.

A client with running requests waits until they release their bytes. One without any waits a while for other clients,
and is then refused. All this lives on the daemon's event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ...requests.budget import Budget, BudgetError

# How long a client without running requests waits for others to release bytes.
_WAIT_SECONDS = 10.0
# Polled, because neither other clients' releases nor the end of a client that we don't read from is announced here.
_LOOK_AGAIN_SECONDS = 0.1


class ClientBudget:
    def __init__(self, budget: Budget, client: str, has_running: Callable[[], bool], check: Callable[[], None]) -> None:
        """`check` raises if the client has disconnected."""
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
        """The most bytes for messages still being received; the rest is reserved for complete requests."""
        return self._budget.per_client // 2

    def take(self, num_bytes: int) -> None:
        """Charge these bytes; raises `BudgetError` if they don't fit."""
        self._charge.grow(num_bytes)

    def give(self, num_bytes: int) -> None:
        self._charge.shrink(num_bytes)
        self._freed.set()

    def close(self) -> None:
        """Release all charged bytes."""
        self._charge.release()

    async def take_when_free(self, num_bytes: int) -> None:
        """Charge these bytes once there is room; raises `BudgetError` if waiting is of no use."""
        await self._when(lambda: self.take(num_bytes))

    @asynccontextmanager
    async def taken(self, num_bytes: int) -> AsyncIterator[None]:
        """Charge these bytes while the context is open; raises `BudgetError` if waiting is of no use."""
        await self.take_when_free(num_bytes)
        try:
            yield
        finally:
            self.give(num_bytes)

    async def take_ahead(self, num_bytes: int) -> None:
        """Charge a part of a message that is still being received."""

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
