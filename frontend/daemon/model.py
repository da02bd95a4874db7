"""One named model of the daemon: loaded on first use, unloaded when it has been idle for a while, restarted if it dies.

Every user holds a lease; a model with leases is never unloaded. It lives on the daemon's event loop, and blocking work
runs in threads. `DaemonModels` makes room for it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ...protocol.attach import ModelStatus
from ...protocol.errors import ClosedError, EngineDeadError, PenstockError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.stats import Stats
from ..console import logs
from ..replicas.replica import restart_pause
from ..session.engine_transport import EngineTransport
from ..session.private import PrivateSession
from ..session.threads import in_own_thread
from .settings import ModelSettings
from .survivors import Survivors

SHUTTING_DOWN = "The daemon is shutting down."
# Requests that outlive a tree wait for a new one through so many deaths of the model, one soon after another.
_MOST_DEATHS_IN_A_ROW = 4
# Statistics are left out if the engine doesn't answer within this time.
_STATS_SECONDS = 2.0
# A tree that has lived this long ends the series of deaths before it.
_LONG_LIFE = 60.0


class DaemonModel:
    """Call `lease()`, then `ready()` as often as needed, then `release()`."""

    def __init__(
        self, settings: ModelSettings, open_session: "Callable[[DaemonModel], Awaitable[PrivateSession]]"
    ) -> None:
        self.settings = settings
        self.is_stale = False  # its settings have changed: it goes when nobody uses it; a new one has its name
        self.leases = 0
        self.restarts = 0
        self.last_error, self.last_error_time = "", 0.0  # of a load that failed or a tree that died, Unix seconds
        self.last_used = time.monotonic()
        self.session: PrivateSession | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.says_failures = True  # in the log; False while somebody waits who reports them
        self._open_session = open_session
        self._loading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = Survivors()
        self._adapters: dict[str, str] = {}  # of the last session; the next one loads them again
        self._ready_since = -math.inf
        self._deaths_in_a_row = 0
        self._has_died = False  # and is to be restarted
        self._is_at_fault = False  # it has not been ready since its last error
        self._become("unloaded")

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and nobody uses it."""
        return self.session is not None and self.leases == 0

    @property
    def adapters(self) -> dict[str, str]:
        """Name → folder of every adapter that a client has loaded, also while the model itself is unloaded."""
        return self._adapters if self.session is None else self.session.adapters.loaded

    @property
    def is_held(self) -> bool:
        """Whether it has processes, or is about to have some."""
        return self.session is not None or self._loading is not None or self._closing is not None

    @property
    def is_needed(self) -> bool:
        """Whether somebody uses it, or its processes have yet to end."""
        return self.leases > 0 or self.is_held

    @property
    def error(self) -> str:
        """Why it isn't ready; empty once it is."""
        return self.last_error if self._is_at_fault else ""

    def _become(self, state: str) -> None:
        self.state, self.since = state, time.time()

    def _note_fault(self, error: BaseException) -> None:
        self.last_error, self.last_error_time, self._is_at_fault = str(error), time.time(), True

    # --- leases ----------------------------------------------------------------------------------------------------

    def lease(self) -> None:
        self.leases += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        self.leases -= 1
        self.last_used = time.monotonic()
        if self.leases == 0:
            self.settle()
        self.on_change()

    def settle(self) -> None:
        """If nobody uses it, unload it once `keep_alive` seconds have passed since its last use."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.is_idle:
            return
        left = 0.0 if self.is_stale else self.last_used + self.settings.keep_alive - time.monotonic()
        if left < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(left, 0.0), self._unload_if_idle)

    def _unload_if_idle(self) -> None:
        self._timer = None
        if self.is_idle:
            self.unload()

    # --- loading ---------------------------------------------------------------------------------------------------

    async def ready(self) -> PrivateSession:
        """Its session, loaded if necessary; raises if it can't be loaded."""
        while self.session is None:
            # Several clients may wait for the same load, which continues when one of them leaves.
            await asyncio.shield(self._loading or self._begin_load())
        return self.session

    async def load_once(self) -> None:
        """Load it ahead of any use. With a `keep_alive` of 0 it is unloaded as soon as it is ready."""
        if self.session is None:
            await asyncio.shield(self._loading or self._begin_load())

    def _begin_load(self) -> "asyncio.Task[None]":
        if self.state != "restarting":
            self._become("loading")
        self._loading = asyncio.create_task(self._load())
        self._loading.add_done_callback(self._load_ended)
        return self._loading

    def _load_ended(self, load: "asyncio.Task[None]") -> None:
        """Log a load that failed; try again if the tree has died and somebody still wants the model."""
        failed = not load.cancelled() and load.exception() is not None
        if failed and self.says_failures and not isinstance(load.exception(), ClosedError):
            logs.say(f"{self.name} could not be loaded: {self.error}", quiet=False)
        comes_back = False
        if failed and self._has_died and self.session is None and self._loading is None:
            comes_back = self._come_back()
        if failed and (error := load.exception()) is not None:
            is_death = isinstance(error, EngineDeadError) and self._deaths_in_a_row < _MOST_DEATHS_IN_A_ROW
            if not (comes_back and is_death):
                self._survivors.fail(error if isinstance(error, PenstockError) else EngineDeadError(str(error)))
        self.on_change()

    def _come_back(self) -> bool:
        if is_wanted := self._is_wanted:
            self._become("restarting")
            self._begin_load()
        return is_wanted

    @property
    def _is_wanted(self) -> bool:
        return self.leases > 0 or (self.settings.preload and not self.is_stale)

    async def _load(self) -> None:
        try:
            if self._closing is not None:
                await self._closing
            await asyncio.sleep(self._pause())
            self._become("loading")
            session = await self._open_session(self)
        except asyncio.CancelledError:  # by `end`; those who wait for it were not
            self._become("unloaded")
            raise ClosedError(SHUTTING_DOWN) from None
        except BaseException as error:
            # A start that dies counts as a death, and so does any failure to restart a dead model. The restart is tried
            # again by itself, as is a preloaded model; other failed loads are tried again when somebody asks.
            self._has_died |= isinstance(error, EngineDeadError) and self.settings.preload
            self._deaths_in_a_row += self._has_died or isinstance(error, EngineDeadError)
            self._become("failed")
            self._note_fault(error)
            raise
        finally:
            self._loading = None
        self._survivors.go_on(session)  # before others hear that it is ready
        self.session, self._has_died, self._is_at_fault = session, False, False
        self._ready_since = time.monotonic()
        self._become("ready")
        self._hear_of_death(session.transport)
        self.settle()
        self.on_change()

    def _hear_of_death(self, client: EngineTransport) -> None:
        loop = asyncio.get_running_loop()

        def tell(error: PenstockError) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._died, client, error)

        client.on_death = tell  # refers to the client alone, so that the session and its tokenizer can be freed
        if client.error is not None:  # before anyone could tell
            self._died(client, client.error)

    def _pause(self) -> float:
        return restart_pause(self._deaths_in_a_row)

    def _died(self, client: EngineTransport, error: PenstockError) -> None:
        if self.session is None or self.session.transport is not client:
            if self.session is None and self._loading is None:
                self._survivors.fail(error)
            return
        self._survivors.keep_door(self.session)
        self._let_go()
        self._has_died = True
        self.restarts += 1
        self._deaths_in_a_row += 1
        self._become("unloaded")
        self._note_fault(error)
        when = f"in {self._pause():.1f} s" if self._is_wanted else "when it is next used"
        logs.say(f"{self.name}: {error} It is started again {when}.", quiet=False)
        self._closing = asyncio.create_task(self._close(client))
        if not self._come_back():
            self._survivors.fail(error)
        self.on_change()

    def _let_go(self) -> None:
        if self.session is not None:
            if time.monotonic() - self._ready_since > _LONG_LIFE:
                self._deaths_in_a_row = 0
            self._adapters, self.session = self.session.adapters.loaded, None

    # --- unloading -------------------------------------------------------------------------------------------------

    def unload(self) -> asyncio.Task[None] | None:
        """End its processes; requests that still wait for an answer fail."""
        if self.session is not None:
            client = self.session.transport
            self._let_go()
            self._survivors.fail(ClosedError("The model was unloaded."))  # it forgets the session, too
            self._become("unloading")
            self._closing = asyncio.create_task(self._close(client))
        return self._closing

    async def _close(self, client: EngineTransport) -> None:
        try:
            await in_own_thread(client.close)
        finally:
            self._closing = None
            if self.state == "unloading":
                self._become("unloaded")
            self.on_change()

    async def end(self) -> None:
        """Unload it for good; a load in progress fails."""
        self._has_died = False
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
            with suppress(asyncio.CancelledError, PenstockError):
                await self._loading
        self._survivors.fail(ClosedError(SHUTTING_DOWN))
        if (closing := self.unload()) is not None:
            await closing

    # --- looking ---------------------------------------------------------------------------------------------------

    async def stats(self) -> Stats | None:
        """The engine's statistics; None if there is no engine or it doesn't answer."""
        if self.session is None:
            return None
        with suppress(EngineDeadError, ClosedError, TimeoutError):
            return await asyncio.wait_for(asyncio.wrap_future(self.session.transport.ask_stats()), _STATS_SECONDS)
        return None

    async def silent(self, seconds: float) -> list[str]:
        """Its processes that don't answer. Those that have ended aren't included: its state shows them."""
        if self.session is None:
            return []
        client = self.session.transport
        try:
            return await client.silent(seconds)
        except ClosedError:
            pass
        except PenstockError as error:
            self._died(client, error)  # we may be the first to hear of it
        return []

    def status(self) -> ModelStatus:
        session = self.session
        plan = session.plan if session is not None else None
        return ModelStatus(
            self.name,
            self.settings.model,
            "leaving" if self.is_stale else self.state,
            self.leases,
            self.since,
            self.restarts,
            0 if session is None or plan is None else _taken_bytes(session.config, plan),
            plan,
            error=self.error,
            last_error=self.last_error,
            last_error_time=self.last_error_time,
        )


def _taken_bytes(config: EngineConfig, plan: MemoryPlan) -> int:
    return plan.taken_by(config.tensor_parallel_size, config.data_parallel_size)
