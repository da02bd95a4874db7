"""An endpoint as an ASGI application: reads the body, does the endpoint's work and sends the reply.

If the client closes its connection, the work is cancelled, along with its requests in the engine. All memory of a
request is charged to its client until then. An error before the first byte becomes a status, a later one the last event
of the stream.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from ...protocol.fields.decoding_fault import DecodingFault
from ..requests.budget import Budget, Charge
from ..session.threads import Threads
from .answers.error_forms import ErrorForm, error_form
from .answers.errors import ApiError, as_api_error, log
from .answers.long_json import PIECE_BYTES
from .answers.reply import Events, LongReply, Reply, send_error, send_reply, start_events, start_long
from .answers.request_log import LogEntry, log_entry_of
from .files.stored_work import StoredWork
from .files.upload import BUFFER_BYTES
from .loaded_model import LoadedModel
from .metrics import Metrics
from .models import Models
from .options import HttpOptions
from .requests.active_requests import ActiveRequest, ActiveRequests, owner_of
from .requests.body import BodyReader, ClientDisconnect, Receive, Scope, Send, check_same_site
from .requests.concurrency_limit import ConcurrencyLimit

Result = TypeVar("Result")
Query = TypeVar("Query", bound=msgspec.Struct)
AnyReply = Reply | LongReply | Events

_LONG_BYTES = 2**14
# Copies of a body's texts that exist while a template renders them.
_COPIES = 3
# Memory of a request that isn't counted otherwise: its task, its generators, the piece being sent.
_REQUEST_BYTES = 2 * PIECE_BYTES


@dataclass(frozen=True, slots=True)
class Server:
    """The common state of all endpoints."""

    models: Models
    options: HttpOptions
    budget: Budget
    metrics: Metrics
    concurrency: ConcurrencyLimit
    bodies: BodyReader
    pace: asyncio.Lock  # one long piece is made in each round of the loop, for all requests together
    stored: StoredWork | None = None  # files and batches; None: this server keeps none
    active_requests: ActiveRequests = field(default_factory=ActiveRequests)


@dataclass(frozen=True, slots=True)
class Call:
    """An endpoint's input besides the body."""

    server: Server
    salt: str | None  # of the API key, for cached prefixes
    client: str  # charged for the request; clients take turns
    charge: Charge  # for all of its memory
    num_bytes: int  # of the body
    active_request: ActiveRequest  # its entry in /v1/requests
    named: str = ""  # from the path
    query: Mapping[str, str] = field(default_factory=dict)
    log_entry: LogEntry = field(default_factory=LogEntry)

    @property
    def owner(self) -> str:
        """Whose the files and batches of this call are."""
        return self.salt or ""

    @property
    def stored(self) -> StoredWork:
        if self.server.stored is None:
            raise ApiError(404, "This server keeps no files and no batches.")
        return self.server.stored

    def asked(self, kind: type[Query]) -> Query:
        """The parameters after the path's question mark."""
        try:
            return msgspec.convert(self.query, kind, strict=False)
        except msgspec.ValidationError as error:
            fault = DecodingFault.of(error, kind, whole="The query", given=dict(self.query))
            raise ApiError(400, fault.sentence, param=fault.field or None) from None

    @asynccontextmanager
    async def model(self, name: str | None) -> AsyncIterator[LoadedModel]:
        """The loaded model, and then a slot among the answers that are computed at once.

        In this order, requests for a model that loads slowly don't delay those for others.
        """
        self.active_request.model = name or ""
        async with self.server.models.lease(name) as model:
            self.log_entry.model = model.name
            self.active_request.model, self.active_request.state = name or model.name, "waiting"
            async with self.server.concurrency.one(self.client):
                self.active_request.state = "prompt"
                yield model

    async def done(
        self, threads: Threads, work: Callable[..., Result], *arguments: Any, takes_long: bool = False
    ) -> Result:
        """Run work before or after generating; for a long request in a thread, so that other streams continue."""
        if not takes_long and self.num_bytes <= _LONG_BYTES:
            return work(*arguments)
        with self.charge.more(_COPIES * self.num_bytes):
            return await threads.run(work, *arguments, client=self.client)


Work = Callable[[Call, Any], Awaitable[AnyReply]]


def client_of(scope: Scope) -> str:
    """The API key's salt if there are keys, otherwise the connection: one address may have many clients."""
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
        self._answer_ids = answer_ids  # prefix of its answers' ids; None: not listed in /v1/requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A request without a body holds little, so it is answered even if its key's budget is used up.
        client = client_of(scope) if self._body is not None else _connection(scope)
        charge = Charge(self._server.budget, client)
        sender = _ReplySender(send, charge, self._server.pace, error_form(self._path, scope["headers"]))
        try:
            await self._serve(scope, receive, charge, sender)
        except ClientDisconnect:
            sender.status = 499
        except Exception as error:  # whatever it is, only this request ends
            await sender.error(as_api_error(error))
        finally:
            charge.release()
            self._server.metrics.count(self._path, sender.status)
            log_entry_of(scope).status = sender.status

    async def _serve(self, scope: Scope, receive: Receive, charge: Charge, sender: "_ReplySender") -> None:
        body = bytearray()
        if self._body is None and scope["method"] == "POST":
            check_same_site(scope)
        elif self._body is not None:
            charge.grow(_REQUEST_BYTES)
            needs_type = not self._path.startswith("/api/")  # Ollama takes JSON of any type
            body = await self._server.bodies.read(scope, receive, charge, needs_type=needs_type)
        call = self._call(scope, charge, len(body))
        with self._server.active_requests.one(call.active_request) if self._answer_ids else nullcontext():
            await while_there(receive, self._answer(call, body, sender), call.active_request.stopped())

    def _call(self, scope: Scope, charge: Charge, num_bytes: int) -> Call:
        salt, named = scope["state"].get("salt"), scope["path_params"].get("named", "")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        active = ActiveRequest((self._answer_ids or "") + secrets.token_hex(12), self._path, owner_of(scope))
        log_entry_of(scope).prompts = active.prompts
        return Call(self._server, salt, charge.client, charge, num_bytes, active, named, query, log_entry_of(scope))

    async def _answer(self, call: Call, body: bytearray, sender: "_ReplySender") -> None:
        if self._body is None:
            await sender.reply(await self._work(call, None))
            return
        request = await self._server.bodies.decoded(body, self._body, call.charge)
        async with asyncio.timeout(self._server.options.request_timeout):
            await sender.reply(await self._work(call, request))


class UploadEndpoint(Endpoint):
    """`work` gets the call and the upload, which is on the disk by then."""

    async def _serve(self, scope: Scope, receive: Receive, charge: Charge, sender: "_ReplySender") -> None:
        check_same_site(scope)
        charge.grow(_REQUEST_BYTES + 2 * BUFFER_BYTES)
        call = self._call(scope, charge, 0)
        upload = await call.stored.upload(call.owner)
        try:
            await upload.read(scope, receive)
            await sender.reply(await self._work(call, upload))
        finally:
            await upload.close()


class _ReplySender:
    """Sends the reply, and keeps track of what the client has received."""

    def __init__(self, send: Send, charge: Charge, pace: asyncio.Lock, form: ErrorForm) -> None:
        self._send = send
        self._form = form
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
            await start_long(self._send, reply)
            for piece in reply.pieces:
                await self._piece(piece)
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._stream(reply)

    async def _stream(self, reply: Events) -> None:
        async with aclosing(reply.pieces) as pieces:  # type: ignore[type-var]
            # Make the first piece before sending the status, so that a request refused by then gets an error status.
            first = await anext(pieces, b"")
            self.status, self._events = 200, reply
            await start_events(self._send, reply)
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
            await send_error(self._send, error, self._form)
        else:
            log.error("a reply broke off: %s", error)  # the connection ends, too: nothing else can tell the client


async def while_there(receive: Receive, work: Coroutine[Any, Any, None], *ends: Coroutine[Any, Any, None]) -> None:
    """Do the work, but cancel it if the client disconnects or one of `ends` comes."""
    tasks = [asyncio.ensure_future(each) for each in (work, _left(receive), *ends)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await next(task for task in tasks if task.done())
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(receive: Receive) -> None:
    """Raise `ClientDisconnect` once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
