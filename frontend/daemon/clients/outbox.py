"""Messages and requests with news that are still to be sent to a client, all of it charged to the client.

A request with news is noted once, however often it has some: its deltas are merged until the socket can take them. So a
client that reads slowly costs no more than its answers and delays nobody; one that reads nothing at all is disconnected
once much is unread. Requests can be noted from any thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ....protocol.attach import frame
from ....protocol.errors import PenstockError
from ....protocol.wire import Message
from ...requests.budget import BudgetError
from ...session.threads import LoopQueue, Threads
from .client_budget import ClientBudget
from .daemon_request import DaemonRequest, pieces_of

# Limits of one frame, in requests and in bytes of news; and of bytes in the socket's own buffer before we wait.
_GROUP, _GROUP_BYTES, _BUFFERED = 64, 1 << 20, 64 << 10
# A client is disconnected if it has read nothing for so long, and has left more than that unread.
_UNREAD_SECONDS, _MUCH_UNREAD = 120.0, 1 << 20


class ClientOutbox:
    def __init__(
        self,
        writer: asyncio.StreamWriter,
        budget: ClientBudget,
        packing: Threads,
        on_over: Callable[[DaemonRequest], object],
    ) -> None:
        """`on_over` is called for each request of which nothing more is sent."""
        self._writer = writer
        self._budget = budget
        self._packing = packing
        self._on_over = on_over
        writer.transport.set_write_buffer_limits(high=_BUFFERED)
        self._frames: deque[bytes] = deque()
        self._noted = LoopQueue(asyncio.get_running_loop(), self._collect)
        self._fresh: dict[DaemonRequest, None] = {}
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()  # a message was taken from `_frames`

    def say(self, message: Message) -> None:
        """Queue a message, from the loop; raises `BudgetError` if there is no room for it."""
        packed = frame(message)
        self._budget.take(len(packed))
        self._frames.append(packed)
        self._wake.set()

    def say_anything(self, message: Message) -> None:
        """Queue a message, from the loop, unless something else is about to be sent anyway."""
        if not self._frames and not self._fresh:
            self.say(message)

    async def drained(self) -> None:
        """Wait until all queued messages have been taken for sending."""
        while self._frames:
            self._taken.clear()
            await self._taken.wait()

    def note(self, request: DaemonRequest) -> None:
        """Note that a request has news; from any thread."""
        self._noted.put(request)

    def _collect(self, request: DaemonRequest) -> None:
        if not request.is_over:
            self._charge(request)
            if request.has_news:
                self._fresh[request] = None
                self._wake.set()

    def _charge(self, request: DaemonRequest) -> None:
        """Charge what has come of its answer; if there is no room, the request ends."""
        try:
            request.keep(self._budget)
        except BudgetError as error:
            request.refuse(error)
            self._fresh[request] = None
            self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; raises what the socket raises."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._frames or self._fresh:
                packed, charged = self._message() if self._frames else await self._news()
                self._writer.write(packed)
                del packed
                await self._drained()
                self._budget.give(charged)

    def _message(self) -> tuple[bytes, int]:
        self._taken.set()
        packed = self._frames.popleft()
        return packed, len(packed)

    async def _news(self) -> tuple[bytes, int]:
        """A frame with the news of some requests, and what was charged for them."""
        group: list[DaemonRequest] = []
        num_bytes = 0
        while self._fresh and len(group) < _GROUP and num_bytes < _GROUP_BYTES:
            request = next(iter(self._fresh))
            del self._fresh[request]
            group.append(request)
            num_bytes += request.charged - request.num_bytes
        # Packing many log-probabilities takes long, so a thread does it.
        if num_bytes > _GROUP_BYTES:
            packed = await self._packing.run(_packed, group, client=self._budget.client)
        else:
            packed = _packed(group)
        given = sum(request.hand_over() for request in group)
        for request in group:
            if request.is_over:
                self._on_over(request)
            else:
                self._charge(request)  # news that came after the others were taken
        return packed, given

    async def _drained(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_UNREAD_SECONDS):
                    return await self._writer.drain()
            except TimeoutError:
                news = sum(request.charged - request.num_bytes for request in self._fresh)
                unread = news + sum(map(len, self._frames))
                if unread + self._writer.transport.get_write_buffer_size() > _MUCH_UNREAD:
                    raise PenstockError(
                        f"{unread >> 20:,} MiB of answers were left unread for {_UNREAD_SECONDS:.0f} s."
                    ) from None


def _packed(group: list[DaemonRequest]) -> bytes:
    return b"".join(map(frame, pieces_of(group)))
