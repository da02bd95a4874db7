"""One request and its answer, between a connection and the ASGI application that answers.

`receive` hands over the body as it comes, and later reports that the client has left. `send` returns when the client
has taken nearly all that was sent, so that unread bytes are held only once, by whoever sends them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ..answers.errors import as_api_error
from ..answers.reply import send_error
from ..requests.body import Receive, Scope, Send
from .request_head import RequestHead

if TYPE_CHECKING:
    from .connection import Connection

Message = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Bytes written at once; the client must have read most of a piece before the next one is written.
_PIECE = 2**16
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Exchange:
    def __init__(self, connection: "Connection", head: RequestHead, body: bytearray, *, is_whole: bool) -> None:
        self._connection = connection
        self._head = head
        self._news = asyncio.Event()
        if body or is_whole:
            self._news.set()
        self._expects_continue = head.expects_continue and not is_whole
        self._keeps_alive = head.keeps_alive
        self._is_chunked = False
        self._start: bytes | None = None  # the answer's head, until its first bytes
        self.unread = body  # the part that came since the application last called `receive`
        self.is_whole = is_whole
        self.has_begun = False  # to answer
        self.is_over = False  # answered, or the client is gone

    def add(self, piece: bytearray, *, is_whole: bool) -> None:
        """A further piece of the body."""
        self.unread += piece
        self.is_whole = is_whole
        self._news.set()

    def leave(self) -> None:
        """The client has left, or is not to be answered any more."""
        self.is_over = True
        self._news.set()

    def close_after(self) -> None:
        """Make the answer the connection's last, if its head isn't sent yet."""
        self._keeps_alive = False

    async def run(self, application: Application, scope: Scope) -> None:
        try:
            await application(scope, self.receive, self.send)
        except Exception as error:
            answer = as_api_error(error)  # writes to the log
            if not self.has_begun:
                await send_error(self.send, answer)
        finally:
            if not self.is_over:
                self._connection.abort()

    async def receive(self) -> Message:
        if self._expects_continue and not self.is_over:
            self._expects_continue = False
            self._connection.write(_CONTINUE)
        await self._news.wait()
        if self.is_over:
            return {"type": "http.disconnect"}
        self._news.clear()
        body, self.unread = bytes(self.unread), bytearray()
        self._connection.go_on()
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            self._start = self._answer_head(message["status"], message.get("headers", []))
            return
        is_last = not message.get("more_body", False)
        for piece in self._framed(message.get("body", b""), is_last):
            self._connection.write(piece)
            await self._connection.drained()
            if self.is_over:
                return
        if is_last:
            self.is_over = True
            self._news.set()
            self._connection.finished(keeps_alive=self._keeps_alive)

    def _answer_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        self.has_begun = True
        self._expects_continue = False
        names = {name for name, _ in headers}
        if not self.is_whole or (b"connection", b"close") in headers:
            self._keeps_alive = False
        if not self._keeps_alive and b"connection" not in names:
            headers = [*headers, (b"connection", b"close")]
        has_body = self._head.method != "HEAD" and status not in (204, 304)
        if has_body and b"content-length" not in names and self._head.version == "1.1":
            self._is_chunked = True
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        return answer_head(status, headers)

    def _framed(self, body: bytes, is_last: bool) -> Iterator[bytes | memoryview]:
        """The bytes to write. The head goes with the first bytes, so that most answers are one packet."""
        start, self._start = self._start or b"", None
        if self._head.method == "HEAD":
            body = b""
        end = b"0\r\n\r\n" if is_last and self._is_chunked else b""
        if len(body) <= _PIECE:
            yield start + (b"%x\r\n%b\r\n" % (len(body), body) if self._is_chunked and body else body) + end
            return
        yield start + (b"%x\r\n" % len(body) if self._is_chunked else b"")
        view = memoryview(body)
        for number in range(0, len(body), _PIECE):
            yield view[number : number + _PIECE]
        yield (b"\r\n" if self._is_chunked else b"") + end


def answer_head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b\r\n" % (status, _PHRASES.get(status, b""), _date(int(time.time())), lines)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
