"""Gives up a daemon that says nothing for too long while somebody waits for it.

A daemon that works says so again and again. One whose process is stopped, or whose loop hangs, says nothing; one that
only gets no core on a busy machine isn't blamed for that. Knows nothing of what is waited for.
"""

import math
import time
from collections.abc import Callable

from ....protocol.attach import WORD_SECONDS
from ....protocol.errors import EngineDeadError
from ..tree.vital_signs import Process, is_stopped
from ..tree.watchdog import Timer, Watchdog
from .connection import Line

# How long a daemon may take to say the first word; one that is stopped will not.
FIRST_WORD_SECONDS, _STOPPED_SECONDS = 5.0, 1.0
# One that works may be late with some of its words.
_LEAST_SECONDS = 3 * WORD_SECONDS


class Patience:
    """With the line, for as long as it lasts or as the block that is waited in."""

    def __init__(self, line: Line, seconds: float, is_waited_for: Callable[[], bool] = lambda: True) -> None:
        """0 seconds: whoever has said a first word may be silent forever."""
        self.line = line
        self._later = max(seconds, _LEAST_SECONDS) if seconds else math.inf
        self._daemon = Process(line.pid)
        self._timer = Timer()
        bound = self._bound if self._bound < math.inf else 0.0
        self._watchdog = Watchdog(bound, is_waited_for, self._begin, self._look)

    @property
    def _bound(self) -> float:
        return self._later if self.line.num_heard else FIRST_WORD_SECONDS

    def wake(self) -> None:
        """A wait begins."""
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
        # With a debugger in it, it says nothing, and that is meant.
        self._timer.count((self.line.num_heard, chance.is_traced), 0.0 if chance.is_traced else chance.seconds)
        bound = min(self._bound, _STOPPED_SECONDS) if chance.is_stopped and not self.line.num_heard else self._bound
        if self._timer.seconds >= bound:
            self.line.give_up(silence(self.line, self._timer.seconds))


def silence(line: Line, seconds: float) -> EngineDeadError:
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
    why = ", for it is stopped (SIGSTOP)" if is_stopped(line.pid) else ""
    return EngineDeadError(
        f"The daemon at {line.address} (pid {line.pid}) has said nothing for {seconds:.1f} s, since {since}{why}. "
        "Resume it, or end it with `penstock stop`."
    )
