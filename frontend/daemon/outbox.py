"""What a client is still to be told: answers, and requests that have news. Its memory has a bound.

A request that has news is noted once, however often it has some: what it says is taken when the socket takes it, and
until then its deltas are merged. So a client that reads slowly costs no more than its answers, and delays nobody.
Filled from any thread. Knows nothing of what the messages mean.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ...protocol.attach import frame
from ...protocol.wire import Message
from .held import Held, pieces_of

# Requests whose news make one frame; and bytes that wait in the socket's own buffer before we wait.
_GROUP, _BUFFERED = 64, 64 << 10


class Outbox:
    def __init__(self, writer: asyncio.StreamWriter, on_over: Callable[[int], object]) -> None:
        """`on_over` hears the number of each request that has had its last word."""
        self._writer = writer
        self._on_over = on_over
        writer.transport.set_write_buffer_limits(high=_BUFFERED)
        self._loop = asyncio.get_running_loop()
        self._messages: deque[Message] = deque()
        self._noted: deque[Held] = deque()  # by other threads
        self._is_called = False
        self._fresh: dict[int, Held] = {}
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()  # a message was

    def say(self, message: Message) -> None:
        """From the loop."""
        self._messages.append(message)
        self._wake.set()

    def say_anything(self, message: Message) -> None:
        """From the loop: this, unless there is something to say anyway."""
        if not self._messages and not self._fresh:
            self.say(message)

    async def told(self) -> None:
        """Wait until the socket has taken all messages so far."""
        while self._messages:
            self._taken.clear()
            await self._taken.wait()

    def note(self, held: Held) -> None:
        """This request has news; from any thread."""
        self._noted.append(held)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._is_called = False  # before looking, so that what is noted from now on calls again
        while self._noted:
            held = self._noted.popleft()
            if not held.is_over:
                self._fresh[held.number] = held
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; raises what the socket raises."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._messages or self._fresh:
                self._writer.write(self._next())
                await self._writer.drain()

    def _next(self) -> bytes:
        if self._messages:
            self._taken.set()
            return frame(self._messages.popleft())
        group = [self._fresh.pop(number) for number in list(self._fresh)[:_GROUP]]
        frames = b"".join(map(frame, pieces_of(group)))
        for held in group:
            if held.is_over:
                self._on_over(held.number)
        return frames
