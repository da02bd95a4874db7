"""One HTTP connection: reads requests, answers them one after another, and closes if its client exceeds a limit.

While a request is answered, later ones stay bytes in a bounded buffer, and after that in the network. A connection has
one timer, which only complete requests and their answers reset: a client whose bytes never become a request, or that
reads nothing of its answer, is cut off in bounded time.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote

import msgspec

from ..options import HttpOptions
from ..schemas.others import ErrorBody, Fault
from .exchange import Application, Exchange, Message, answer_head
from .message_body import ChunkedBody, SizedBody
from .open_connections import OpenConnections
from .request_head import END, BadRequest, RequestHead, check_beginning, parse_head

# Bytes read at once, and bytes held before reading pauses.
READ_BYTES = 2**15
# Bytes of an answer that a transport buffers before writers have to wait; with TLS it holds them encrypted as well.
_UNSENT_BYTES = 2**15
# An application that reads the body has its own timeout and a better error; this is for one that doesn't.
_BODY_GRACE_SECONDS = 2.0
# How long a client may take to close after its last answer. Further bytes are read and dropped: unread bytes would
# reset the connection, and the answer would be lost.
_LINGER_SECONDS = 2.0
_CLOSE = (b"connection", b"close")


@dataclass(frozen=True, slots=True)
class Context:
    """The common state of all connections of a server."""

    application: Application
    options: HttpOptions
    open: OpenConnections
    scheme: str
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # One buffer for all connections: each read is handled before the next one.
    received: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))


@runtime_checkable
class _Tls(Protocol):
    """A transport that buffers received bytes until they are read."""

    def set_read_buffer_limits(self, high: int) -> None: ...


class Connection(asyncio.BufferedProtocol):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._options = context.options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # until it is connected
        self._scope: Message = {}  # the common part of all its requests
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()  # received bytes, not yet parsed
        self._searched = 0  # bytes of it already searched for the end of a head
        self._is_in_head = True  # a request has begun to arrive, or must
        self._body: SizedBody | ChunkedBody = SizedBody(0)
        self._exchange: Exchange | None = None  # while a request is answered
        self._is_closing = False  # after the last answer: further bytes are dropped
        self._is_reading = True
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.connecting: asyncio.Task[None] | None = None  # until there is a transport

    # --- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream: asyncio.Transport = transport  # type: ignore[assignment]  # a listening socket's connections are streams
        self._transport = stream
        stream.set_write_buffer_limits(_UNSENT_BYTES)
        if isinstance(transport, _Tls):
            transport.set_read_buffer_limits(READ_BYTES)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": _address(transport.get_extra_info("sockname")),
            "client": _address(transport.get_extra_info("peername")),
            "scheme": self._context.scheme,
            "root_path": "",
        }
        self._arm(self._options.header_timeout)

    def connection_lost(self, exception: Exception | None) -> None:
        self._leave()

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._context.received

    def buffer_updated(self, num_bytes: int) -> None:
        if self._is_closing:
            return
        self._buffer += self._context.received[:num_bytes]
        try:
            if self._exchange is None:
                self._read_head()
            elif not self._body.is_complete:
                self._read_body(self._exchange)
        except BadRequest as error:
            self._refuse(error)
        self._pause_or_resume()

    def eof_received(self) -> None:
        """Treat a client that sends no more as disconnected, since the two look the same. The transport closes
        itself."""
        if self._exchange is not None:
            self.abort()

    def pause_writing(self) -> None:
        self._can_write.clear()
        if self._timer is None:
            self._arm(self._options.stall_timeout)

    def resume_writing(self) -> None:
        self._can_write.set()
        if self._exchange is not None and self._body.is_complete:
            self._disarm()

    # --- called by the server, and to make room for another connection ------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    @property
    def has_unread_answer(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def end(self) -> None:
        """Close now, or after the current answer."""
        if self._exchange is not None:
            self._exchange.close_after()
        elif self._transport is None:
            self.abort()
        elif not self._is_closing:
            self._close(lingers=False)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self.connecting is not None:
            # Not at once: a task that is cancelled before it has begun would never close its socket.
            self._loop.call_soon(self.connecting.cancel)
        self._leave()

    # --- called by the exchange --------------------------------------------------------------------------------------

    def write(self, content: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(content)

    async def drained(self) -> None:
        if not self._can_write.is_set():
            await self._can_write.wait()

    def go_on(self) -> None:
        self._pause_or_resume()

    def finished(self, *, keeps_alive: bool) -> None:
        self._exchange = None
        if not keeps_alive:
            self._close(lingers=bool(self._buffer) or not self._is_reading or not self._body.is_complete)
            return
        self._is_in_head = False
        self._context.open.move(self, self._context.open.waiting)
        self._arm(self._options.idle_timeout)
        try:
            self._read_head()
        except BadRequest as error:
            self._refuse(error)
        self._pause_or_resume()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_head(self) -> None:
        buffer, most = self._buffer, self._options.max_header_bytes
        while buffer.startswith(b"\r\n"):  # some clients end a body with an empty line
            del buffer[:2]
        if not buffer:
            return
        end = buffer.find(END, self._searched)
        if (end if end >= 0 else len(buffer)) + len(END) > most:
            raise BadRequest(431, f"The first line and the headers have more than {most:,} bytes (max_header_bytes).")
        if end < 0:
            check_beginning(buffer)
            self._searched = max(0, len(buffer) - len(END) + 1)
            if not self._is_in_head:
                self._is_in_head = True
                self._arm(self._options.header_timeout)
            return
        head = bytes(buffer[: end + len(END)])
        del buffer[: end + len(END)]
        self._searched = 0
        self._begin(parse_head(head))

    def _begin(self, head: RequestHead) -> None:
        self._body = SizedBody(head.length) if head.length is not None else ChunkedBody(self._options.max_header_bytes)
        piece = self._body.take(self._buffer)
        self._exchange = Exchange(self, head, piece, is_whole=self._body.is_complete)
        self._await_body()
        path = head.path.decode()
        scope: Message = {
            **self._scope,
            "http_version": head.version,
            "method": head.method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "headers": head.headers,
            "state": {},
            # For an application that takes a long body, and has a time limit of its own for each part of it.
            "extensions": {"penstock.body_goes_on": self._go_on_waiting},
        }
        task = self._loop.create_task(self._exchange.run(self._context.application, scope))
        self._context.tasks.add(task)
        task.add_done_callback(self._context.tasks.discard)

    def _read_body(self, exchange: Exchange) -> None:
        piece = self._body.take(self._buffer)
        exchange.add(piece, is_whole=self._body.is_complete)
        if self._body.is_complete:
            self._await_body()

    def _await_body(self) -> None:
        """Set the timer: until the body is complete we wait for the client; then the client waits for us."""
        everyone = self._context.open
        if not self._body.is_complete:
            everyone.move(self, everyone.sending)
            self._arm(self._options.body_timeout + _BODY_GRACE_SECONDS)
            return
        everyone.move(self, everyone.busy)
        self._disarm()
        if not self._can_write.is_set():  # the answer began before that, and the client doesn't read it
            self._arm(self._options.stall_timeout)

    def _go_on_waiting(self) -> None:
        if self._exchange is not None and not self._body.is_complete:
            self._arm(self._options.body_timeout + _BODY_GRACE_SECONDS)

    def _pause_or_resume(self) -> None:
        """Stop reading while enough bytes wait to be taken."""
        exchange = self._exchange
        has_enough = exchange is not None and (
            len(exchange.unread) >= READ_BYTES or (self._body.is_complete and len(self._buffer) >= READ_BYTES)
        )
        if has_enough == self._is_reading and self._transport is not None:
            self._is_reading = not has_enough
            (self._transport.pause_reading if has_enough else self._transport.resume_reading)()

    # --- its end -----------------------------------------------------------------------------------------------------

    def _refuse(self, error: BadRequest) -> None:
        """Answer with the error, unless an answer is half sent. A running request ends as if the client had
        disconnected."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.leave()
            if exchange.has_begun:
                self.abort()
                return
        fault = Fault(message=str(error), type="invalid_request_error", code=error.status)
        body = msgspec.json.encode(ErrorBody(error=fault))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), _CLOSE]
        self.write(answer_head(error.status, headers) + body)
        self._close(lingers=True)

    def _close(self, *, lingers: bool) -> None:
        """Close once everything is sent. With `lingers`, read further bytes from the client: otherwise it may lose
        the answer."""
        self._is_closing = True
        self._buffer.clear()
        self._context.open.move(self, self._context.open.waiting)
        self._arm(self._options.stall_timeout if self.has_unread_answer else _LINGER_SECONDS)
        if (transport := self._transport) is None:
            return
        if lingers and transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def _leave(self) -> None:
        """The connection is over, whatever its state. Safe to call twice."""
        self._is_closing = True
        self._disarm()
        self._context.open.leave(self)
        self._buffer.clear()
        self._can_write.set()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.leave()

    # --- its timer ---------------------------------------------------------------------------------------------------

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self._loop.call_later(seconds, self._expired)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        if self._exchange is not None and not self._is_reading and self._can_write.is_set():
            self._await_body()  # the application is late, which leaves the body unread, not the client
        else:
            self.abort()


def _address(name: Any) -> tuple[str, int] | None:
    """Host and port; None for a client that has left already."""
    return (name[0], name[1]) if name else None
