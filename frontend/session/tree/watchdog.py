"""A thread that watches other processes while somebody waits for them, and sleeps while nobody does.

It counts only time in which it ran itself: time in which it was stopped, or the machine slept, doesn't count.
"""

import threading
import time
from collections.abc import Callable

_LONGEST_INTERVAL = 1.0
# The pause between two checks, as a share of the bound: a hang is noticed at most two pauses late.
_SHARE = 0.1


def pause_of(seconds: float) -> float:
    """Seconds between two checks, with this bound."""
    return min(_LONGEST_INTERVAL, seconds * _SHARE)


class Watchdog:
    """Call `wake` whenever a wait begins, and `stop` at the end. With a bound of 0 seconds it never checks."""

    def __init__(
        self,
        seconds: float,
        is_waited_for: Callable[[], bool],
        begin: Callable[[], None],
        look: Callable[[float], None],
    ) -> None:
        """`begin` resets the counts; then `look` is called repeatedly with the seconds that have passed."""
        self._interval = pause_of(seconds)
        self._is_waited_for = is_waited_for
        self._begin = begin
        self._look = look
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)
        if seconds > 0:
            self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wanted.wait()
            self._wanted.clear()
            self._begin()
            last = time.monotonic()
            # After the pause: by then pings of the last check are answered, and don't keep it awake.
            while not self._stopped.wait(self._interval) and self._is_waited_for():
                now = time.monotonic()
                self._look(min(now - last, 2 * self._interval))
                last = now


class Timer:
    """Seconds since a sign of life last changed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sign: object = self

    def count(self, sign: object, seconds: float) -> None:
        if sign == self._sign:
            self.seconds += seconds
        else:
            self._sign, self.seconds = sign, 0.0
