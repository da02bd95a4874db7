"""Accepts connections from a listening socket: each first needs a free slot, then does its TLS handshake."""

import asyncio
import socket
import ssl
from typing import Any

from .connection import Connection, Context

# Connections accepted in one round; between two rounds the open ones have their turn.
_ACCEPTED_AT_ONCE = 32
_REST_SECONDS = 0.5
# The kernel's receive buffer with TLS, which reads all of it at once and holds it twice.
_TLS_UNREAD_BYTES = 2**15


class Listener:
    def __init__(self, listening: socket.socket, context: Context, tls: ssl.SSLContext | None) -> None:
        self.socket = listening
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {
                "ssl": tls,
                "ssl_handshake_timeout": context.options.header_timeout,
                "ssl_shutdown_timeout": context.options.stall_timeout,
            }
        self._rest: asyncio.TimerHandle | None = None
        self._begin()

    def stop(self) -> None:
        """Stop accepting. The socket stays open, since another listener may take it over."""
        self._loop.remove_reader(self.socket)
        if self._rest is not None:
            self._rest.cancel()

    def _begin(self) -> None:
        self._loop.add_reader(self.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # its client has left already
                continue
            except OSError:  # out of descriptors or memory
                self._stop_for_a_while()
                return
            self._take(accepted)

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        if self._tls:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TLS_UNREAD_BYTES)
        connection = Connection(self._context)
        if not self._context.open.enter(connection):
            accepted.close()
            return
        connection.connecting = self._loop.create_task(self._connect(connection, accepted))
        self._context.tasks.add(connection.connecting)
        connection.connecting.add_done_callback(self._context.tasks.discard)

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **self._tls)
        except OSError:
            pass  # its client doesn't use TLS, is too slow, or has disconnected
        finally:
            connection.connecting = None
            if not connection.is_connected:
                self._context.open.leave(connection)

    def _stop_for_a_while(self) -> None:
        self._context.open.make_room()
        self.stop()
        self._rest = self._loop.call_later(_REST_SECONDS, self._begin)
