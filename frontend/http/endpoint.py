"""One endpoint as an ASGI application: its body read, its work done while the client is there, its reply sent.

The work ends with the client: a connection that closes cancels it, and with it what runs in the engine. What goes wrong
before the first byte becomes a status, later the last event of the stream. Knows nothing of what endpoints do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..threads import Threads
from .body import BodyReader, Gone, Receive, Scope, Send
from .errors import ApiError, as_api_error
from .metrics import Metrics
from .models import Models
from .options import HttpOptions
from .places import Places
from .reply import Events, Reply, send_error, send_reply, start_events

Result = TypeVar("Result")

_LONG_BYTES = 2**14


@dataclass(frozen=True, slots=True)
class Server:
    """What all endpoints share."""

    models: Models
    options: HttpOptions
    metrics: Metrics
    places: Places
    bodies: BodyReader


@dataclass(frozen=True, slots=True)
class Call:
    """What an endpoint is told beside the body."""

    server: Server
    salt: str | None  # of the API key, for cached prefixes
    num_bytes: int  # of the body
    named: str = ""  # what the path names
    client: str = ""  # whose turn it takes: its key, and where there are no keys its address

    async def done(
        self, threads: Threads, work: Callable[..., Result], *arguments: Any, takes_long: bool = False
    ) -> Result:
        """Work before and after a model is asked; in a thread for a long request, so that other streams go on."""
        if takes_long or self.num_bytes > _LONG_BYTES:
            return await threads.run(work, *arguments, client=self.client)
        return work(*arguments)


Work = Callable[[Call, Any], Awaitable[Reply | Events]]


class Endpoint:
    """`work` gets the call and the decoded body (None for a GET)."""

    def __init__(
        self, server: Server, path: str, work: Work, body: type[msgspec.Struct] | None, *, takes_place: bool
    ) -> None:
        self._server = server
        self._path = path
        self._work = work
        self._body = body
        self._takes_place = takes_place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = _Told(send)
        try:
            body, num_bytes = None, 0
            if self._body is not None:
                body, num_bytes = await self._server.bodies.read(scope, receive, self._body)
            named = scope["path_params"].get("named", "")
            salt = scope["state"].get("salt")
            call = Call(self._server, salt, num_bytes, named, salt or str(scope.get("client")))
            await while_there(receive, self._answer(call, body, told))
        except Gone:
            told.status = 499
        except Exception as error:  # the door of the process: whatever it is, only this request ends
            await told.error(as_api_error(error))
        finally:
            self._server.metrics.count(self._path, told.status)

    async def _answer(self, call: Call, body: Any, told: "_Told") -> None:
        if not self._takes_place:
            await told.reply(await self._work(call, body))
            return
        async with self._server.places.one(), asyncio.timeout(self._server.options.request_timeout):
            await told.reply(await self._work(call, body))


class _Told:
    """What the client has been told so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._events: Events | None = None  # once a stream has begun
        self.status = 500

    async def reply(self, reply: Reply | Events) -> None:
        if isinstance(reply, Reply):
            self.status = reply.status
            await send_reply(self._send, reply)
            return
        async with aclosing(reply.pieces) as pieces:  # type: ignore[type-var]
            # The first piece before the status: what is refused up to here still gets one that says so.
            first = await anext(pieces, b"")
            self.status, self._events = 200, reply
            await start_events(self._send)
            await self._send({"type": "http.response.body", "body": first, "more_body": True})
            async for piece in pieces:
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": reply.ending})

    async def error(self, error: ApiError) -> None:
        self.status = error.status
        if self._events is None:
            await send_error(self._send, error)
        else:
            body = self._events.failed(error) + self._events.ending
            await self._send({"type": "http.response.body", "body": body})


async def while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, unless the client goes first; then it is cancelled."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        await task
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
