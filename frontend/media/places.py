"""Slots for concurrent decoding, so that slow media hold up nobody.

There are short slots and long ones. Decoding begins in a short slot; if it takes too long, it continues in a long one.
If no long one is free and somebody waits for a short one, it is stopped, and starts again in a long slot when its turn
comes. So a short slot is held only briefly, whatever is decoded there.
"""

import os
import threading
from collections.abc import Callable

SHORT_PLACES = min(8, max(2, len(os.sched_getaffinity(0))))
LONG_PLACES = max(1, SHORT_PLACES // 4)
_SHORT_SECONDS = 2.0


class Turn:
    """One decoding in progress."""

    def __init__(self, has_long: bool) -> None:
        self.stop: Callable[[], None] = lambda: None  # called in another thread
        self.has_long = has_long
        self.is_over = False
        self.was_stopped = False


class Places:
    def __init__(
        self, num_short: int = SHORT_PLACES, num_long: int = LONG_PLACES, short_seconds: float = _SHORT_SECONDS
    ) -> None:
        self._short_seconds = short_seconds
        self._changed = threading.Condition()
        self._num_short, self._num_long = num_short, num_long  # free slots
        self._num_waiting = 0  # for short slots

    def begin_short(self) -> Turn:
        """Take a short slot; blocks until there is one."""
        with self._changed:
            self._num_waiting += 1
            self._changed.wait_for(lambda: self._num_short > 0)
            self._num_waiting -= 1
            self._num_short -= 1
        turn = Turn(has_long=False)
        self._watch(turn)
        return turn

    def begin_long(self, seconds: float) -> Turn | None:
        """Take a long slot; None if there is none in that time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._num_long > 0, seconds):
                return None
            self._num_long -= 1
        return Turn(has_long=True)

    def end(self, turn: Turn) -> None:
        with self._changed:
            turn.is_over = True
            if turn.has_long:
                self._num_long += 1
            else:
                self._num_short += 1
            self._changed.notify_all()

    def _watch(self, turn: Turn) -> None:
        timer = threading.Timer(self._short_seconds, self._overdue, (turn,))
        timer.daemon = True
        timer.start()

    def _overdue(self, turn: Turn) -> None:
        with self._changed:
            if turn.is_over:
                return
            if self._num_long:
                turn.has_long = True
                self._num_long -= 1
                self._num_short += 1
                self._changed.notify_all()
                return
            turn.was_stopped = self._num_waiting > 0
        if turn.was_stopped:
            turn.stop()
        else:
            self._watch(turn)
