"""What a client is still to be told: answers, and requests that have news. All of it is charged to the client.

A request that has news is noted once, however often it has some: what it says is taken when the socket takes it, and
until then its deltas are merged. So a client that reads slowly costs no more than its answers, and delays nobody; one
that reads nothing at all is sent away when that has become much. Noted from any thread. Knows nothing of what the
messages mean.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ...protocol.attach import frame
from ...protocol.errors import PenstockError
from ...protocol.wire import Message
from ..requests.budget import BudgetError
from ..session.loop_queue import LoopQueue
from ..session.threads import Threads
from .client_budget import ClientBudget
from .daemon_request import DaemonRequest, pieces_of

# Requests whose news make one frame, and bytes of news; and bytes that wait in the socket's own buffer before we wait.
_GROUP, _GROUP_BYTES, _BUFFERED = 64, 1 << 20, 64 << 10
# Who has read nothing for so long, and has left more than that unread.
_UNREAD_SECONDS, _MUCH_UNREAD = 120.0, 1 << 20


class Outbox:
    def __init__(
        self,
        writer: asyncio.StreamWriter,
        budget: ClientBudget,
        packing: Threads,
        on_over: Callable[[DaemonRequest], object],
    ) -> None:
        """`on_over` hears of each request that has had its last word."""
        self._writer = writer
        self._budget = budget
        self._packing = packing
        self._on_over = on_over
        writer.transport.set_write_buffer_limits(high=_BUFFERED)
        self._frames: deque[bytes] = deque()
        self._noted = LoopQueue(asyncio.get_running_loop(), self._collect)
        self._fresh: dict[DaemonRequest, None] = {}
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()  # a message was

    def say(self, message: Message) -> None:
        """From the loop; raises `BudgetError` where there is no room for it."""
        packed = frame(message)
        self._budget.take(len(packed))
        self._frames.append(packed)
        self._wake.set()

    def say_anything(self, message: Message) -> None:
        """From the loop: this, unless there is something to say anyway."""
        if not self._frames and not self._fresh:
            self.say(message)

    async def told(self) -> None:
        """Wait until the socket has taken all messages so far."""
        while self._frames:
            self._taken.clear()
            await self._taken.wait()

    def note(self, request: DaemonRequest) -> None:
        """Something of this request has come; from any thread."""
        self._noted.put(request)

    def _collect(self, request: DaemonRequest) -> None:
        if not request.is_over:
            self._charge(request)
            if request.has_news:
                self._fresh[request] = None
                self._wake.set()

    def _charge(self, request: DaemonRequest) -> None:
        """For what has come of it; it ends where there is no room."""
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
        """Of some requests, and what they were charged for them."""
        group: list[DaemonRequest] = []
        num_bytes = 0
        while self._fresh and len(group) < _GROUP and num_bytes < _GROUP_BYTES:
            request = next(iter(self._fresh))
            del self._fresh[request]
            group.append(request)
            num_bytes += request.charged - request.num_bytes
        # Many log-probabilities take long to be made objects.
        if num_bytes > _GROUP_BYTES:
            packed = await self._packing.run(_packed, group, client=self._budget.client)
        else:
            packed = _packed(group)
        given = sum(request.hand_over() for request in group)
        for request in group:
            if request.is_over:
                self._on_over(request)
            else:
                self._charge(request)  # for what came after its news were taken, and was taken for charged
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
