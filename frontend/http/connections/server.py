"""The HTTP server: listens, answers requests until it is closed, and closes within bounded time.

It runs in its caller's event loop, and doesn't touch signals.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from ....protocol.errors import ConfigError
from ...requests.budget import Budget
from ..application import application, server_of
from ..files.stored_work import StoredWork
from ..models import Models
from ..options import HttpOptions
from .connection import Context
from .listener import Listener
from .open_connections import OpenConnections

_BACKLOG = 512
# The kernel's send buffer of a connection: by default, a client that reads nothing could take several megabytes.
_SEND_BUFFER = 128 << 10
_HOSTS = "HOST is an address of this machine: 127.0.0.1 is for its own programs, 0.0.0.0 for all who reach it."
_REMEDIES = {
    errno.EADDRNOTAVAIL: _HOSTS,
    errno.EACCES: "Ports below 1024 may be for the administrator alone: choose a higher one.",
}
# How long aborted requests may take to end.
_LAST_SECONDS = 1.0


class HttpServer:
    """Call `start`, then `close`; `address` is its URL."""

    def __init__(
        self,
        models: Models,
        options: HttpOptions,
        budget: Budget | None = None,
        say: Callable[[str], None] | None = None,
        stored: StoredWork | None = None,
    ) -> None:
        """Without a `budget` it has its own, sized by the machine's memory. `say` gets a log line for each request,
        `stored` keeps files and batches."""
        self.options = options
        self._application = application(server_of(models, options, budget or Budget.of_machine(), stored), say)
        self._listener: Listener | None = None
        self._context: Context | None = None
        self._open: OpenConnections | None = None

    @property
    def address(self) -> str:
        """The URL to type into a browser."""
        listener = self._listener
        host, port = listener.socket.getsockname()[:2] if listener is not None else self.options.address
        scheme = "https" if self.options.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def num_busy(self) -> int:
        """Connections with requests being answered, also while it closes."""
        return len(self._open.busy) if self._open is not None else 0

    async def start(self, older: "HttpServer | None" = None) -> None:
        """Start to accept connections; raises `ConfigError` if it can't.

        A server that listens at the same address hands over its socket, so that nobody who connects meanwhile is
        refused.
        """
        tls = _tls(self.options)
        given = older._given_away() if older is not None and older.options.http == self.options.http else None
        listening = given or listening_socket(*self.options.address)
        self._open = OpenConnections(self.options.max_connections)
        self._context = Context(self._application, self.options, self._open, "https" if tls is not None else "http")
        self._listener = Listener(listening, self._context, tls)

    def _given_away(self) -> socket.socket | None:
        """Give away the listening socket: new connections are another server's; open ones stay until `close`."""
        listener, self._listener = self._listener, None
        if listener is None:
            return None
        listener.stop()
        return listener.socket

    async def close(self, seconds: float = 5.0) -> None:
        """Stop listening at once, let requests finish within `seconds`, then abort them."""
        if (listening := self._given_away()) is not None:
            listening.close()
        context, self._context = self._context, None
        if context is None:
            return
        for connection in context.open.all():
            connection.end()
        with suppress(TimeoutError):
            await asyncio.wait_for(context.open.closed(), seconds)
        for connection in context.open.all():
            connection.abort()
        if context.tasks:
            _, unfinished = await asyncio.wait(context.tasks, timeout=_LAST_SECONDS)
            for task in unfinished:
                task.cancel()


def listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: an impossible name
        why = getattr(error, "strerror", None) or "this can be no name"
        raise ConfigError(f"http={host}:{port} has no address: {why}. {_HOSTS}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        remedy = _REMEDIES.get(error.errno or 0, "Choose another port.")
        raise ConfigError(f"http={host}:{port} can't be listened on: {error.strerror}. {remedy}") from error
    return listening


def _tls(options: HttpOptions) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_certificate and tls_key can't be used: {error}.") from error
    return context
