"""The daemon's HTTP server: started with the daemon, replaced when its options change, ended with it.

The server's modules are imported only if HTTP is wanted.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import ConfigError
from ..console import logs
from ..http.options import DEFAULT_ADDRESS, HttpOptions
from ..requests.budget import Budget
from .models import DaemonModels

if TYPE_CHECKING:
    from ..http.batches.service import Batches
    from ..http.connections.server import HttpServer


class DaemonHttp:
    def __init__(
        self,
        models: DaemonModels,
        budget: Budget,
        address: Path,
        on_change: Callable[[], None],
        *,
        is_foreground: bool = False,
    ) -> None:
        """`on_change` is called when a batch has ended or waits."""
        self._models = models
        self._address = address
        self._on_change = on_change
        self._batches: Batches | None = None
        self._budget = budget
        self._is_foreground = is_foreground
        self._server: HttpServer | None = None
        self._started_with: tuple[HttpOptions | None, list[bytes]] = (None, [])
        self._closing: dict[asyncio.Task[None], HttpServer] = {}

    @property
    def address(self) -> str:
        """The URL to type into a browser; empty without HTTP."""
        return self._server.address if self._server is not None else ""

    async def start(self, options: HttpOptions | None) -> None:
        try:
            await self.change(options)
        except ConfigError as error:
            if options is None or options.http != DEFAULT_ADDRESS or not isinstance(error.__cause__, OSError):
                raise
            # The port is only a default that is taken: scripts can attach without HTTP, and a reload won't try again.
            logs.say(f"No HTTP: {error}", quiet=False)
            self._started_with = options, _files_of(options)

    async def change(self, options: HttpOptions | None) -> bool:
        """Start a new server if the options, or the files that they name, have changed. Returns whether they have.

        Running requests continue on the old server. Raises `ConfigError` if the new one can't start; then nothing has
        changed.
        """
        wanted = options, _files_of(options)
        if wanted == self._started_with:
            return False
        server, older = None, self._server
        if options is not None:
            from ..http.serve import start_batches, start_http

            if self._batches is None:
                self._batches = await start_batches(self._models, options, self._address, self._on_change)
            logs_requests = self._is_foreground if options.log_requests == "auto" else options.log_requests == "on"
            say = partial(logs.say, quiet=False) if logs_requests else None
            server = await start_http(self._models, options, self._budget, older, say, self._batches)
            if not options.is_local and options.api_key_file is None:
                words = f"Whoever reaches {server.address} may use it: there are no keys (--api-key-file)."
                logs.say(words, quiet=False)
        self._server, self._started_with = server, wanted
        if older is not None:
            self._close(older, older.options.request_timeout)
        return True

    def close(self, seconds: float) -> None:
        """Begin to close; busy connections have this many seconds."""
        if self._server is not None:
            self._close(self._server, seconds)

    def _close(self, server: "HttpServer", seconds: float) -> None:
        task = asyncio.create_task(server.close(seconds))
        self._closing[task] = server
        task.add_done_callback(self._closing.pop)

    @property
    def has_batches(self) -> bool:
        """Whether there are batches that haven't ended."""
        return self._batches is not None and self._batches.has_unfinished

    async def suspend_batches(self) -> None:
        """Leave running batches for the next start."""
        if self._batches is not None:
            await self._batches.close()

    @property
    def num_busy(self) -> int:
        """Number of connections whose requests are being answered."""
        servers = {*self._closing.values(), *([self._server] if self._server is not None else [])}
        return sum(server.num_busy for server in servers)

    @property
    def is_busy(self) -> bool:
        """Whether a server that was told to close has not ended yet."""
        return bool(self._closing)

    async def ended(self, seconds: float) -> None:
        """Wait for closing servers, for at most this many seconds."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=seconds)


def _files_of(options: HttpOptions | None) -> list[bytes]:
    """Contents of the files that options name. An unreadable one counts as empty: the server's start reports it."""
    names = (options.api_key_file, options.tls_certificate, options.tls_key) if options is not None else ()
    return [_content(Path(os.path.expanduser(name))) for name in names if name is not None]


def _content(path: Path) -> bytes:
    with suppress(OSError):
        if path.is_file():
            return path.read_bytes()
    return b""
