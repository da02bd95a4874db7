"""One endpoint as an ASGI application: its body read, its work done while the client is there, its reply sent.

The work ends with the client: a connection that closes cancels it, and with it what runs in the engine. All that it
holds is charged to the client until then. What goes wrong before the first byte becomes a status, later the last event
of the stream. Knows nothing of what endpoints do.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ..requests.budget import Budget, Charge
from ..session.threads import Threads
from .body import BodyReader, Gone, Receive, Scope, Send
from .errors import ApiError, as_api_error, log
from .long_json import PIECE_BYTES
from .metrics import Metrics
from .models import Model, Models
from .options import HttpOptions
from .places import Places
from .reply import Events, LongReply, Reply, send_error, send_reply, start_events, start_long
from .request_log import Note, note_of
from .running import Running, RunningRequests, owner_of

Result = TypeVar("Result")
AnyReply = Reply | LongReply | Events

_LONG_BYTES = 2**14
# As often a body's texts are there while a template makes a prompt of them.
_COPIES = 3
# What a request takes beside what is counted: its task, its generators, a piece that is on its way.
_REQUEST_BYTES = 2 * PIECE_BYTES


@dataclass(frozen=True, slots=True)
class Server:
    """What all endpoints share."""

    models: Models
    options: HttpOptions
    budget: Budget
    metrics: Metrics
    places: Places
    bodies: BodyReader
    pace: asyncio.Lock  # of long pieces one is made in each round of the loop, whoever waits for one
    running: RunningRequests = field(default_factory=RunningRequests)


@dataclass(frozen=True, slots=True)
class Call:
    """What an endpoint is told beside the body."""

    server: Server
    salt: str | None  # of the API key, for cached prefixes
    client: str  # to whom it is charged, and who takes turns with others
    charge: Charge  # of all that is held for it
    num_bytes: int  # of the body
    running: Running  # what is told of it, and to whom
    named: str = ""  # what the path names
    note: Note = field(default_factory=Note)  # for the line that tells of it

    @asynccontextmanager
    async def model(self, name: str | None) -> AsyncIterator[Model]:
        """Loaded, and a place among the answers that are computed at once.

        In this order: requests for a model that takes long to come, or never comes, hold up nobody else's.
        """
        self.running.model = name or ""
        async with self.server.models.lease(name) as model:
            self.note.model = model.name
            self.running.model, self.running.state = name or model.name, "waiting"
            async with self.server.places.one(self.client):
                self.running.state = "prompt"
                yield model

    async def done(
        self, threads: Threads, work: Callable[..., Result], *arguments: Any, takes_long: bool = False
    ) -> Result:
        """Work before and after a model is asked; in a thread for a long request, so that other streams go on."""
        if not takes_long and self.num_bytes <= _LONG_BYTES:
            return work(*arguments)
        with self.charge.more(_COPIES * self.num_bytes):
            return await threads.run(work, *arguments, client=self.client)


Work = Callable[[Call, Any], Awaitable[AnyReply]]


def client_of(scope: Scope) -> str:
    """An API key where there are keys, else a connection: behind one address there may be many clients."""
    return scope["state"].get("salt") or _connection(scope)


def _connection(scope: Scope) -> str:
    host, port = scope.get("client") or ("", 0)
    return f"{host}:{port}"


class Endpoint:
    """`work` gets the call and the decoded body (None for a GET)."""

    def __init__(
        self, server: Server, path: str, work: Work, body: type[msgspec.Struct] | None, answer_ids: str | None = None
    ) -> None:
        self._server = server
        self._path = path
        self._work = work
        self._body = body
        self._answer_ids = answer_ids  # how the ids of its answers begin, where they run long enough to be listed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What brings no body holds little, and is answered however much its key holds.
        client = client_of(scope) if self._body is not None else _connection(scope)
        charge = Charge(self._server.budget, client)
        told = _Told(send, charge, self._server.pace)
        try:
            body = bytearray()
            if self._body is not None:
                charge.grow(_REQUEST_BYTES)
                body = await self._server.bodies.read(scope, receive, charge)
            salt, named = scope["state"].get("salt"), scope["path_params"].get("named", "")
            running = Running((self._answer_ids or "") + secrets.token_hex(12), self._path, owner_of(scope))
            note_of(scope).prompts = running.prompts
            call = Call(self._server, salt, client, charge, len(body), running, named, note_of(scope))
            with self._server.running.one(running) if self._answer_ids else nullcontext():
                await while_there(receive, self._answer(call, body, told), running)
        except Gone:
            told.status = 499
        except Exception as error:  # the door of the process: whatever it is, only this request ends
            await told.error(as_api_error(error))
        finally:
            charge.release()
            self._server.metrics.count(self._path, told.status)
            note_of(scope).status = told.status

    async def _answer(self, call: Call, body: bytearray, told: "_Told") -> None:
        if self._body is None:
            await told.reply(await self._work(call, None))
            return
        request = await self._server.bodies.decoded(body, self._body, call.charge)
        async with asyncio.timeout(self._server.options.request_timeout):
            await told.reply(await self._work(call, request))


class _Told:
    """What the client has been told so far."""

    def __init__(self, send: Send, charge: Charge, pace: asyncio.Lock) -> None:
        self._send = send
        self._charge = charge
        self._pace = pace
        self._events: Events | None = None  # once a stream has begun
        self._has_begun = False
        self.status = 500

    async def reply(self, reply: AnyReply) -> None:
        if isinstance(reply, Reply):
            with self._charge.more(len(reply.body)):
                self.status, self._has_begun = reply.status, True
                await send_reply(self._send, reply)
        elif isinstance(reply, LongReply):
            self.status, self._has_begun = 200, True
            await start_long(self._send)
            for piece in reply.pieces:
                await self._piece(piece)
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._stream(reply)

    async def _stream(self, reply: Events) -> None:
        async with aclosing(reply.pieces) as pieces:  # type: ignore[type-var]
            # The first piece before the status: what is refused up to here still gets one that says so.
            first = await anext(pieces, b"")
            self.status, self._events = 200, reply
            await start_events(self._send)
            await self._piece(first)
            async for piece in pieces:
                await self._piece(piece)
        await self._send({"type": "http.response.body", "body": reply.ending})

    async def _piece(self, piece: bytes) -> None:
        is_long = len(piece) >= PIECE_BYTES
        with self._charge.more(len(piece) * is_long):
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        if not is_long:
            return
        async with self._pace:
            await asyncio.sleep(0)

    async def error(self, error: ApiError) -> None:
        self.status = error.status
        if self._events is not None:
            body = self._events.failed(error) + self._events.ending
            await self._send({"type": "http.response.body", "body": body})
        elif not self._has_begun:
            await send_error(self._send, error)
        else:
            log.error("a reply broke off: %s", error)  # and its connection with it: its end can't be told otherwise


async def while_there(receive: Receive, work: Coroutine[Any, Any, None], running: Running) -> None:
    """Do the work, unless the client goes first or stops it; then it is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in (work, _left(receive), running.stopped())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await next(task for task in tasks if task.done())
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(receive: Receive) -> None:
    """Raises `Gone`, once the client is."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise Gone
