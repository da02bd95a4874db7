"""One connection: uvicorn's, with limits that end it where a client sends too slowly, too much, or doesn't read.

Headers must be complete within a time and a size, and what is sent must be taken within a time. Knows nothing of
requests.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .options import HttpOptions


def connection_class(options: HttpOptions) -> type[HttpToolsProtocol]:
    """A class, because uvicorn makes the connections itself."""
    return type("LimitedConnection", (_Connection,), {"options": options})


class _Connection(HttpToolsProtocol):
    options: HttpOptions

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header_bytes = 0
        self._is_in_headers = True
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.options.max_connections:
            transport.abort()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Counted before it is parsed: header lines are kept in memory as they come.
        if self._is_in_headers:
            self._header_bytes += len(data)
            end = data.find(b"\r\n\r\n")
            over = len(data) - end if end >= 0 else 0
            if self._header_bytes - over > self.options.max_header_bytes:
                self.transport.abort()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers = True
        if self._deadline is None:
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._header_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.options.stall_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self.options.header_timeout, self.transport.abort)
