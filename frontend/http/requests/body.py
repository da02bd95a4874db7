"""Reads a request's body within bounds of size, time and memory, and decodes it.

Bytes are charged to the client as they arrive, and the decoded struct before it is made. If there is no room for all
bodies being received, the longest of the slow ones is dropped.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from ...requests.budget import BudgetError, Charge
from ...session.threads import Threads
from ..answers.errors import ApiError
from ..options import HttpOptions
from .decoding import Body, Outline, decoded

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Result = TypeVar("Result")

# Bodies from this length or decoding time on are decoded in a thread, one at a time, so that streams continue
# meanwhile.
LONG_BYTES, LONG_SECONDS = 2**15, 1e-3
# A body that takes longer than this to arrive may be dropped for others.
_PATIENCE = 1.0


class ClientDisconnect(Exception):
    """The client has closed the connection."""


class _IncomingBody(NamedTuple):
    time_left: asyncio.Timeout
    since: float

    def give_way(self) -> None:
        if not self.time_left.expired():  # not dropped already
            self.time_left.reschedule(0.0)


class BodyReader:
    """Reads the bodies of all connections."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._incoming: dict[Charge, _IncomingBody] = {}
        self._turns = FairQueue()
        self._thread = Threads("Bodies", 1)

    async def read(self, scope: Scope, receive: Receive, charge: Charge, *, needs_type: bool = True) -> bytearray:
        """`needs_type`: the body's type has to be said. Where it hasn't, as in Ollama's API, a page of another site,
        which may send JSON as a form, is recognized by its origin."""
        self._check_headers(scope, needs_type=needs_type)
        try:
            async with asyncio.timeout(self._options.body_timeout) as time_left:
                self._incoming[charge] = _IncomingBody(time_left, asyncio.get_running_loop().time())
                try:
                    return await self._filled(receive, charge)
                except BaseException:
                    charge.release()  # before the client is answered, since others wait for the room
                    raise
                finally:
                    del self._incoming[charge]
        except TimeoutError:
            raise ApiError(
                408,
                f"The body was not complete within {self._options.body_timeout:g} s, or stood in the way of others.",
            ) from None

    async def decoded(self, body: bytearray, kind: type[Body], charge: Charge) -> Body:
        """Decode a body, a short one at once. Afterwards the body is empty, and only the struct is charged."""
        num_bytes = len(body)
        try:
            if len(body) < LONG_BYTES and (outline := Outline.of(body)).seconds < LONG_SECONDS:
                await self._admit(outline, charge)
                found = decoded(body, kind)
            else:
                async with self._turns.one(len(body)):
                    await self._admit(await self._in_thread(Outline.of, body), charge)
                    found = await self._in_thread(decoded, body, kind)
        finally:
            body.clear()  # an error's traceback would keep a refused one until the next garbage collection
        charge.shrink(_held(num_bytes))
        return found

    async def _admit(self, outline: Outline, charge: Charge) -> None:
        outline.check()
        await self._charged(outline.decoded_bytes, charge)

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run in the thread. A cancelled call still waits for it, since it uses the charged memory until then."""
        decoding = asyncio.wrap_future(self._thread.submit(work, *arguments))
        try:
            return await asyncio.shield(decoding)
        except asyncio.CancelledError:
            await asyncio.gather(decoding, return_exceptions=True)
            raise

    def _check_headers(self, scope: Scope, *, needs_type: bool) -> None:
        encoding, kind = (only_header(scope, name) for name in (b"content-encoding", b"content-type"))
        if encoding is not None and encoding.strip().lower() != b"identity":
            raise ApiError(415, "Compressed bodies are not taken; send the JSON as it is.")
        if (kind or b"").split(b";")[0].strip().lower() != b"application/json":
            if needs_type:
                raise ApiError(415, "The body must be JSON, with the header Content-Type: application/json.")
            check_same_site(scope)
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._options.max_body_bytes:
            raise self._too_large()

    async def _filled(self, receive: Receive, charge: Charge) -> bytearray:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            if len(body) + len(piece) > self._options.max_body_bytes:
                raise self._too_large()
            await self._charged(_held(len(piece)), charge)
            body += piece
            more = message.get("more_body", False)
        return body

    async def _charged(self, num_bytes: int, charge: Charge) -> None:
        """Charge these bytes; if there is no room, drop longer bodies of others first."""
        while True:
            try:
                charge.grow(num_bytes)
                return
            except BudgetError as error:
                if not error.is_of_all or (other := self._longest_but(charge)) is None:
                    raise
            self._incoming[other].give_way()
            while other in self._incoming:  # its timeout takes effect in a moment
                await asyncio.sleep(0)

    def _longest_but(self, charge: Charge) -> Charge | None:
        """The largest body, longer than this one, that has had enough time to arrive."""
        latest = asyncio.get_running_loop().time() - _PATIENCE
        slow = [
            other
            for other, incoming in self._incoming.items()
            if other is not charge and other.num_bytes > charge.num_bytes and incoming.since < latest
        ]
        return max(slow, key=lambda other: other.num_bytes, default=None)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"The body has more than {self._options.max_body_bytes:,} bytes (option max_body_bytes).")


def check_same_site(scope: Scope) -> None:
    """Refuse a page of another site: it may send a form, or nothing, to any address without asking. JSON it may not."""
    origin, host = only_header(scope, b"origin"), only_header(scope, b"host")
    if origin is not None and origin.partition(b"://")[2].lower() != (host or b"").lower():
        raise ApiError(403, "The request comes from a page of another site (its Origin header).")


def only_header(scope: Scope, name: bytes) -> bytes | None:
    """A header that may occur once: different parsers would interpret two of them differently."""
    found = [value for each, value in scope["headers"] if each == name]
    if len(found) > 1:
        raise ApiError(400, f"There is more than one {name.decode().title()} header.")
    return found[0] if found else None


def _held(num_bytes: int) -> int:
    """Memory of a body of this length while it grows: a bytearray reserves an eighth more."""
    return num_bytes + num_bytes // 8


class FairQueue:
    """Fair queuing for work done one at a time: short work hardly waits, and long work doesn't wait forever.

    A waiter's number is the progress made by its arrival plus the amount of its own work; the least number is next. So
    short work goes before long work that arrived a little earlier. A queue belongs to one event loop.
    """

    def __init__(self) -> None:
        self._progress = 0.0
        self._is_taken = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()

    @asynccontextmanager
    async def one(self, amount: float) -> AsyncIterator[None]:
        """A turn, held while the context is open. `amount` is in any unit, the same for all."""
        if self._is_taken:
            await self._wait(self._progress + amount)
        self._is_taken = True
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, number: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._count), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same moment
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Pass the turn to the next waiter. It stays taken meanwhile, so that no newcomer gets it first."""
        self._is_taken = False
        while self._waiting and not self._is_taken:
            number, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._progress = max(self._progress, number)
                self._is_taken = True
                turn.set_result(None)
