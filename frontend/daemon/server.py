"""The daemon itself: listens at one socket, runs one event loop, and ends in bounded time.

One address has one daemon (`address.py`), and the kernel tells whether a client is the same user. SIGTERM and SIGINT
end the daemon after running requests have had their time; a second signal ends it at once. SIGHUP reads the
configuration again, or ends a daemon that belongs to a terminal.
"""

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ... import __version__
from ...protocol.attach import DaemonStatus, is_own_user
from ...protocol.errors import PenstockError
from ...protocol.files.utf8 import shown
from ...protocol.processes.heap import give_large_blocks_back
from ..console import logs, standard_error
from ..models.model_files import require_known
from ..requests.budget import Budget
from ..session.threads import in_own_thread
from .address import Address
from .clients.client_connection import ClientConnection, MessageThreads, limit_connections
from .clients.questions import QuestionHandler
from .daemon_http import DaemonHttp
from .models import DaemonModels
from .settings import DaemonSettings, ModelSettings

# A hub that doesn't answer within this time isn't waited for: the load itself will find out.
_CHECK_SECONDS = 5.0
# How long clients may take to read the last messages when the daemon ends.
_LAST_WORDS_SECONDS = 1.0
# HTTP connections are closed this much later than requests are ended, so that their clients get the reason.
_HTTP_SECONDS = 10.0


async def require_models(models: Iterable[ModelSettings]) -> None:
    """Raises if a required model doesn't exist, before the daemon listens.

    Folders are looked at and a hub is asked, but nothing is downloaded.
    """
    checks = [asyncio.create_task(_require(model)) for model in models if model.is_required]
    if not checks:
        return
    done, late = await asyncio.wait(checks, timeout=_CHECK_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()


async def _require(model: ModelSettings) -> None:
    try:
        await in_own_thread(require_known, model.config.model, model.config.revision)
    except PenstockError as error:
        raise type(error)(f"{model.name} could not be loaded: {error}") from error


class Daemon:
    """`run` returns when everything has ended."""

    def __init__(
        self,
        address: Path,
        settings: DaemonSettings,
        read_again: Callable[[], DaemonSettings],
        on_progress: Callable[[], None],
        *,
        is_foreground: bool = False,
        ends_with_terminal: bool = False,
    ) -> None:
        """`on_progress` is called when it listens, and again when the required models are loaded."""
        self.address = address
        self.settings = settings
        self._read_again = read_again
        self._on_progress = on_progress
        self._is_foreground = is_foreground
        self._ends_with_terminal = ends_with_terminal
        self.budget = Budget.of_machine(settings.max_held_bytes, settings.max_client_bytes)
        self._threads = MessageThreads()
        self._started = time.time()
        self._clients: dict[ClientConnection, None] = {}  # in the order in which they came
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._drain = settings.drain
        self._linger: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        give_large_blocks_back()
        self.models = DaemonModels(self.settings)
        self.models.on_change = self._look_whether_anyone_is_here
        self._questions = QuestionHandler(self)
        self._http = DaemonHttp(
            self.models, self.budget, self.address, self._look_whether_anyone_is_here, is_foreground=self._is_foreground
        )
        with Address(self.address) as address:
            await require_models(self.settings.models.values())
            server = await asyncio.start_unix_server(self._serve, sock=address.listen())
            try:
                self.models.preload()  # first, so that clients who ask from now on hear that they are loading
                await self._http.start(self.settings.http)
                self._hear_signals()
                self._on_progress()
                names = ", ".join(self.models.names()) or "no model yet"
                logs.say(f"penstock serves {names} at {self._addresses()}", quiet=False)
                await self._loaded()
                self._on_progress()
                self._look_whether_anyone_is_here()
                await self._stopping.wait()
                await self._drained()
            finally:
                address.remove()
                server.close()
                await self._end()

    async def _loaded(self) -> None:
        """Wait until the required models are loaded, or `stop` is called; raises if one can't be loaded."""
        loading = asyncio.create_task(self.models.load_required())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not self._stopping.is_set():
            loading.result()
        loading.cancel()

    def _addresses(self) -> str:
        return f"{self.address} and {self._http.address}" if self._http.address else str(self.address)

    # --- clients -----------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_own_user(writer.get_extra_info("socket")):
            writer.transport.abort()
            return
        client = ClientConnection(reader, writer, self.models, self._questions, self.budget, self._threads)
        if (refusal := limit_connections(self._clients)) is not None:
            await client.decline(refusal)
            return
        self._clients[client] = None
        self._look_whether_anyone_is_here()
        try:
            await client.run()
        finally:
            del self._clients[client]
            self._look_whether_anyone_is_here()

    def _look_whether_anyone_is_here(self) -> None:
        """With the `linger` setting, stop once there have been no clients, models and batches for that long."""
        is_alone = not self._clients and self.models.num_held == 0 and not self._http.has_batches
        if not is_alone and self._linger is not None:
            self._linger.cancel()
            self._linger = None
        elif is_alone and self._linger is None and self.settings.linger < math.inf:
            self._linger = asyncio.get_running_loop().call_later(self.settings.linger, self.stop, 0.0)

    # --- questions about the daemon itself ---------------------------------------------------------------------------

    async def status(self) -> DaemonStatus:
        return msgspec.structs.replace(self.own_status(), models=await self.models.figures())

    def own_status(self) -> DaemonStatus:
        """Without the models', of which engines are asked that may be busy, or ending."""
        return DaemonStatus(
            os.getpid(),
            __version__,
            self._started,
            shown(self.address),
            self._http.address,
            sum(client.model is not None for client in self._clients),
            self.models.is_draining,
            "" if self._is_foreground else shown(logs.daemon_log(self.address)),
            [],
            self._num_running,
            self._drain,
            standard_error.target(),
        )

    @property
    def _num_running(self) -> int:
        return sum(client.num_running for client in self._clients) + self._http.num_busy

    async def reload(self) -> str:
        """Read the configuration again; returns what changed. Raises if it is wrong, and then nothing has changed."""
        settings = await in_own_thread(self._read_again)
        has_changed = await self._http.change(settings.http)
        self.settings, self._drain = settings, settings.drain
        self.budget.take_over(Budget.of_machine(settings.max_held_bytes, settings.max_client_bytes))
        words = self.models.reload(settings)
        return ", ".join(filter(None, [*words, "HTTP changed" if has_changed else ""])) or "nothing changed"

    def unload(self, name: str) -> str:
        """Begin to unload a model; returns its own name."""
        return self.models.unload(name)

    def stop(self, seconds: float | None = None) -> None:
        """Take no new requests, and give running ones `seconds`, or `drain` by default. A second call ends at once."""
        if self._stopping.is_set():
            self._at_once.set()
        self._drain = self._drain if seconds is None else seconds
        self.models.drain()
        self._stopping.set()

    # --- signals -----------------------------------------------------------------------------------------------------

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.stop if self._ends_with_terminal else self._hang_up)

    def _hang_up(self) -> None:
        task = asyncio.create_task(self._reload_and_say())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_and_say(self) -> None:
        try:
            logs.say(f"The configuration was reloaded: {await self.reload()}.", quiet=False)
        except Exception as error:  # nobody else would see it
            why = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            logs.say(f"The configuration was not taken over: {why}", quiet=False)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _drained(self) -> None:
        """Wait until no request runs any more, or their time is over."""
        seconds = self._drain
        if number := self._num_running:
            logs.say(f"Shutting down. Requests that run: {number:,}; they have {seconds:g} s.", quiet=False)
        await self._http.suspend_batches()
        waits = [asyncio.create_task(self._quiet()), asyncio.create_task(self._at_once.wait())]
        self._http.close(seconds + _HTTP_SECONDS)
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        if number := self._num_running:
            logs.say(f"Requests that still run, and are ended: {number:,}.", quiet=False)

    async def _quiet(self) -> None:
        """Wait until nothing runs. Polling is good enough at the end."""
        while self._num_running or self._http.is_busy:
            await asyncio.sleep(0.02)

    async def _end(self) -> None:
        await self.models.end()
        await self._http.ended(_LAST_WORDS_SECONDS)  # its clients have just been answered with an error
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while any(client.num_running for client in self._clients) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for client in list(self._clients):
            client.hang_up()
        while self._clients and time.monotonic() < deadline + _LAST_WORDS_SECONDS:
            await asyncio.sleep(0.01)
