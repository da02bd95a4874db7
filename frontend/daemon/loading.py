"""Loads the daemon's models: reads their files concurrently, and starts their process trees one after another.

Each tree plans with the memory that it finds. If a model doesn't fit, the least recently used idle one is unloaded for
it. A model with leases stays: a load waits for it a while, and then fails with the names of the models that block it.
All this lives on the daemon's event loop.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress

from ...protocol.errors import ClosedError, OutOfMemoryError, PenstockError
from ..console import logs
from ..models.digests import tokenizer_files, weight_files
from ..models.file_stamps import FileStamps, stamps_of
from ..session.private import PrivateSession
from ..session.threads import Threads, in_own_thread, request_template_threads
from .model import DaemonModel
from .settings import DaemonSettings, ModelSettings

# How long a tree may take to close before it was ready.
_END_SECONDS = 5.0
# Loads at a time, including those that wait for a hub or a disk.
_MOST_LOADS = 64


class Loading:
    def __init__(self, settings: DaemonSettings, every: Callable[[], list[DaemonModel]]) -> None:
        """`every` returns all models that may have processes."""
        self.settings = settings
        self.is_draining = False
        self.num_waiting = 0  # loads that wait for leases to be given back
        self._every = every
        self._one_load = asyncio.Lock()
        self._released = asyncio.Event()
        self._starting: list[PrivateSession] = []
        # Threads are reused for the next load, so that the memory left in a thread's heap arena is reused, too.
        self._threads = Threads("Loads", _MOST_LOADS, patience=math.inf)
        self._request_templates = request_template_threads()

    def note_release(self) -> None:
        """Note that a model may have become idle."""
        self._released.set()

    def end(self) -> None:
        """End trees being started; loads in progress fail."""
        self.is_draining = True
        for session in self._starting:
            session.transport.terminate()
        self._request_templates.close()

    async def open(self, model: DaemonModel) -> PrivateSession:
        """Load a model; raises if there is no room for it in time."""
        # A slow hub, disk or file delays this model alone, since the lock is not taken yet.
        session = await self._threads.run(_read, model.settings)
        deadline = time.monotonic() + self.settings.load_wait
        async with self._one_load:
            await self._under_the_limit(model, deadline)
            while True:
                try:
                    await self._started(session)
                    break
                except OutOfMemoryError as error:
                    if not self._others(model):
                        raise
                    await self._make_room(model, str(error), deadline)
        await self._finish(model, session)  # after the lock: other models need not wait for this
        return session

    async def _under_the_limit(self, model: DaemonModel, deadline: float) -> None:
        most = self.settings.max_loaded
        while most is not None and len(self._others(model)) >= most:
            await self._make_room(model, f"max_loaded={most} models are loaded", deadline)

    def _others(self, model: DaemonModel) -> list[DaemonModel]:
        return [other for other in self._every() if other is not model and other.session is not None]

    async def _make_room(self, model: DaemonModel, why: str, deadline: float) -> None:
        """Unload an idle model, or wait until a lease is given back; raises if that takes too long."""
        idle = [other for other in self._others(model) if other.is_idle]
        if idle:
            closing = min(idle, key=lambda other: other.last_used).unload()
            if closing is not None:
                await closing
            return
        self._released.clear()
        self.num_waiting += 1
        try:
            await asyncio.wait_for(self._released.wait(), max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            users = [f"{other.name} ({other.leases} in use)" for other in self._others(model)]
            raise OutOfMemoryError(
                f"{model.name} does not fit next to the models in use: {why.rstrip('.')}. "
                f"What would have to go: {', '.join(users)}. Waited {self.settings.load_wait:.0f} s (load_wait)."
            ) from None
        finally:
            self.num_waiting -= 1

    async def _started(self, session: PrivateSession) -> None:
        starting = asyncio.ensure_future(self._threads.run(self._start, session))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:  # the thread continues: end its tree, which nobody else knows
            with suppress(PenstockError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await asyncio.shield(starting)
                    await in_own_thread(session.transport.close)
            raise

    def _start(self, session: PrivateSession) -> None:
        if self.is_draining:
            raise ClosedError("The daemon is shutting down.")
        session.start()
        session.transport.closed_meanwhile = "The daemon was ended while this request ran."
        self._starting.append(session)
        try:
            if self.is_draining:  # `end` ran while the children were being started, and did not see them
                session.transport.terminate()
            session.templates.start()
            session.wait_until_ready()
            session.templates.wait_until_ready()
        except BaseException:
            session.transport.close()
            raise
        finally:
            self._starting.remove(session)
        session.threads.request_templates = self._request_templates

    async def _finish(self, model: DaemonModel, session: PrivateSession) -> None:
        """Load the adapters of the session before, and check that its files are those that were read."""
        try:
            for name, path in model.adapters.items():
                await session.threads.adapters.run(_load_again, session, model.name, name, path)
            if await self._threads.run(_stamps, session) != session.model_stamps:
                raise PenstockError(f"The files of {model.name} have changed while they were read. Load it again.")
        except BaseException:  # nobody else knows of the session yet
            await in_own_thread(session.transport.close)
            raise


def _read(settings: ModelSettings) -> PrivateSession:
    """A session whose files are read, and whose tree is not started yet."""
    session = PrivateSession(settings.model, settings.options)
    session.model_stamps = _stamps(session)
    session.read_tokenizer()
    return session


def _stamps(session: PrivateSession) -> FileStamps:
    folder, tokenizer_folder = session.model_folders
    return stamps_of({*weight_files(folder), *tokenizer_files(folder), *tokenizer_files(tokenizer_folder)})


def _load_again(session: PrivateSession, model: str, name: str, path: str) -> None:
    try:
        session.adapters.load(name, path)
    except PenstockError as error:
        logs.say(f"{model}: the adapter {name} could not be loaded again: {error}", quiet=False)
