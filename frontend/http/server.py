"""The server: listens, answers until it is closed, and is closed within a bounded time.

Runs in the event loop of whoever starts it and leaves signals alone. Knows nothing of models, which `Models` brings.
"""

import asyncio
import socket
import ssl
from contextlib import suppress

import uvicorn

from ...protocol.errors import ConfigError
from .application import application
from .connection import connection_class
from .models import Models
from .options import HttpOptions

_BACKLOG = 512
# What the kernel takes for a client that reads nothing, which would otherwise be several megabytes for each.
_SEND_BUFFER = 128 << 10
_KEEP_ALIVE_SECONDS = 30


class HttpServer:
    """`start`, then `close`; `address` is where it can be found."""

    def __init__(self, models: Models, options: HttpOptions) -> None:
        self.options = options
        self._application = application(models, options)
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """As one types it into a browser."""
        host, port = self._socket.getsockname()[:2] if self._socket is not None else self.options.address
        scheme = "https" if self.options.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def start(self, older: "HttpServer | None" = None) -> None:
        """Returns when connections are taken; raises `ConfigError` where that can't be.

        One that listens at the same address gives its socket, so that nobody who connects meanwhile is refused.
        """
        context = _tls(self.options)
        gives = older is not None and older.options.http == self.options.http
        self._socket = older._given_away() if gives else _listening(*self.options.address)
        config = uvicorn.Config(
            self._application,  # type: ignore[arg-type]
            http=connection_class(self.options),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # a line for every request that is no HTTP would be another way to fill a disk
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            backlog=_BACKLOG,
        )
        config.load()
        config.ssl = context
        # Its own `serve` would take the process's signals.
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])
        self._task = asyncio.create_task(self._server.main_loop())

    def _given_away(self) -> socket.socket:
        """Its listening socket: new connections are another's, those that are open stay until `close`."""
        listening = self._socket.dup()
        for server in self._server.servers:
            server.close()
        return listening

    async def close(self, seconds: float = 5.0) -> None:
        """Stop listening at once, let what runs end within `seconds`, then cut it."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        self._server.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]
        await self._task
        await self._server.shutdown(sockets=[self._socket] if self._socket else [])
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        if tasks := list(self._server.server_state.tasks):
            with suppress(asyncio.CancelledError):
                await asyncio.wait(tasks, timeout=1)
        self._server = None


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"http={host}:{port}: {error.strerror or error}.") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listening.bind(address)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigError(f"http={host}:{port} can't be listened on: {error.strerror}. Choose another port.") from error
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
