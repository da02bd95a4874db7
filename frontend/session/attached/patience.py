"""Gives up a daemon that sends nothing for too long while somebody waits for it.

A working daemon sends `StillWorking` again and again. One whose process is stopped, or whose loop hangs, sends nothing.
Time in which it gets no core on a busy machine doesn't count.
"""

import math
import time
from collections.abc import Callable

from ....protocol.attach import WORD_SECONDS
from ....protocol.errors import EngineDeadError
from ..tree.vital_signs import Process, is_stopped
from ..tree.watchdog import Timer, Watchdog
from .connection import DaemonConnection

# How long a daemon may take to send its first message; a stopped one gets less.
FIRST_WORD_SECONDS, _STOPPED_SECONDS = 5.0, 1.0
# A working daemon may be late with some `StillWorking`.
_LEAST_SECONDS = 3 * WORD_SECONDS


class Patience:
    """Lives as long as the connection, or as a `with` block in which somebody waits."""

    def __init__(
        self, connection: DaemonConnection, seconds: float, is_waited_for: Callable[[], bool] = lambda: True
    ) -> None:
        """With 0 seconds, the daemon may be silent forever after its first message."""
        self.connection = connection
        self._later = max(seconds, _LEAST_SECONDS) if seconds else math.inf
        self._daemon = Process(connection.pid)
        self._timer = Timer()
        bound = self._bound if self._bound < math.inf else 0.0
        self._watchdog = Watchdog(bound, is_waited_for, self._begin, self._look)

    @property
    def _bound(self) -> float:
        return self._later if self.connection.num_heard else FIRST_WORD_SECONDS

    def wake(self) -> None:
        """Begin a wait."""
        self._watchdog.wake()

    def end(self) -> None:
        self._watchdog.stop()

    def __enter__(self) -> "Patience":
        self.wake()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def _begin(self) -> None:
        self._timer = Timer()

    def _look(self, seconds: float) -> None:
        chance = self._daemon.chance(seconds)
        # A daemon in a debugger may be silent.
        self._timer.count((self.connection.num_heard, chance.is_traced), 0.0 if chance.is_traced else chance.seconds)
        bound = self._bound
        if chance.is_stopped and not self.connection.num_heard:
            bound = min(bound, _STOPPED_SECONDS)
        if self._timer.seconds >= bound:
            self.connection.give_up(silence(self.connection, self._timer.seconds))


def silence(connection: DaemonConnection, seconds: float) -> EngineDeadError:
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
    why = ", for it is stopped (SIGSTOP)" if is_stopped(connection.pid) else ""
    return EngineDeadError(
        f"The daemon at {connection.address} (pid {connection.pid}) has said nothing for {seconds:.1f} s, since "
        f"{since}{why}. Resume it, or end it with `penstock stop`."
    )
