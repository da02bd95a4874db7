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
from .held import Held, pieces_of
from .room import Room

# Requests whose news make one frame, and bytes of news; and bytes that wait in the socket's own buffer before we wait.
_GROUP, _GROUP_BYTES, _BUFFERED = 64, 1 << 20, 64 << 10
# Who has read nothing for so long, and has left more than that unread.
_UNREAD_SECONDS, _MUCH_UNREAD = 120.0, 1 << 20


class Outbox:
    def __init__(
        self, writer: asyncio.StreamWriter, room: Room, packing: Threads, on_over: Callable[[Held], object]
    ) -> None:
        """`on_over` hears of each request that has had its last word."""
        self._writer = writer
        self._room = room
        self._packing = packing
        self._on_over = on_over
        writer.transport.set_write_buffer_limits(high=_BUFFERED)
        self._frames: deque[bytes] = deque()
        self._noted = LoopQueue(asyncio.get_running_loop(), self._collect)
        self._fresh: dict[Held, None] = {}
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()  # a message was

    def say(self, message: Message) -> None:
        """From the loop; raises `BudgetError` where there is no room for it."""
        packed = frame(message)
        self._room.take(len(packed))
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

    def note(self, held: Held) -> None:
        """Something of this request has come; from any thread."""
        self._noted.put(held)

    def _collect(self, held: Held) -> None:
        if not held.is_over:
            self._charge(held)
            if held.has_news:
                self._fresh[held] = None
                self._wake.set()

    def _charge(self, held: Held) -> None:
        """For what has come of it; it ends where there is no room."""
        try:
            held.keep(self._room)
        except BudgetError as error:
            held.refuse(error)
            self._fresh[held] = None
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
                self._room.give(charged)

    def _message(self) -> tuple[bytes, int]:
        self._taken.set()
        packed = self._frames.popleft()
        return packed, len(packed)

    async def _news(self) -> tuple[bytes, int]:
        """Of some requests, and what they were charged for them."""
        group: list[Held] = []
        num_bytes = 0
        while self._fresh and len(group) < _GROUP and num_bytes < _GROUP_BYTES:
            held = next(iter(self._fresh))
            del self._fresh[held]
            group.append(held)
            num_bytes += held.charged - held.num_bytes
        # Many log-probabilities take long to be made objects.
        if num_bytes > _GROUP_BYTES:
            packed = await self._packing.run(_packed, group, client=self._room.client)
        else:
            packed = _packed(group)
        given = sum(held.hand_over() for held in group)
        for held in group:
            if held.is_over:
                self._on_over(held)
            else:
                self._charge(held)  # for what came after its news were taken, and was taken for charged
        return packed, given

    async def _drained(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_UNREAD_SECONDS):
                    return await self._writer.drain()
            except TimeoutError:
                unread = sum(held.charged - held.num_bytes for held in self._fresh) + sum(map(len, self._frames))
                if unread + self._writer.transport.get_write_buffer_size() > _MUCH_UNREAD:
                    raise PenstockError(
                        f"{unread >> 20:,} MiB of answers were left unread for {_UNREAD_SECONDS:.0f} s."
                    ) from None


def _packed(group: list[Held]) -> bytes:
    return b"".join(map(frame, pieces_of(group)))
