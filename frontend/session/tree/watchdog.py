"""A thread that watches other processes while somebody waits for them, and sleeps while nobody does.

It counts only time in which it ran itself: if it was stopped, or the machine slept, that time is not held against them.
"""

import threading
import time
from collections.abc import Callable

_LONGEST_INTERVAL = 1.0
# The pause between two looks, as a share of the bound: a hang is noticed at most two pauses late.
_SHARE = 0.1


class Watchdog:
    """`wake` it whenever a wait begins; `stop` it at the end. With a bound of 0 seconds it never looks."""

    def __init__(
        self,
        seconds: float,
        is_waited_for: Callable[[], bool],
        begin: Callable[[], None],
        look: Callable[[float], None],
    ) -> None:
        """`begin` forgets what was counted; then `look` hears again and again how many seconds have passed."""
        self._interval = min(_LONGEST_INTERVAL, seconds * _SHARE)
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
            # After the pause: by then, what a look has asked is answered, and keeps nobody looking.
            while not self._stopped.wait(self._interval) and self._is_waited_for():
                now = time.monotonic()
                self._look(min(now - last, 2 * self._interval))
                last = now


class Timer:
    """Seconds since a sign last changed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sign: object = self

    def count(self, sign: object, seconds: float) -> None:
        if sign == self._sign:
            self.seconds += seconds
        else:
            self._sign, self.seconds = sign, 0.0
