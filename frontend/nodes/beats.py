"""When the processes that connect a tree's machines, `link.py` and `node.py`, have something to do unasked.

Each sends a beat every second, and a node more often if its watchdog looks more often. Until the tree is ready, it
also looks often at the file by which the ranks find one another. Time in which it was stopped isn't counted: it has
heard nobody meanwhile, which is no silence of others.
"""

import math
import time

from ...protocol.ranks.node_messages import BEAT_SECONDS

_MEETING_SECONDS = 0.02  # between two looks at the meeting file while the tree starts


class Beats:
    """Call `due` after every wait of `pause`."""

    def __init__(self, period: float = BEAT_SECONDS) -> None:
        self.period = period  # seconds between two beats
        self.is_ready = False  # the tree
        self._last_read = time.monotonic()
        self._stopped = 0.0  # seconds
        self._last_beat = self.now()

    @property
    def pause(self) -> int:
        """Milliseconds to wait for messages at most."""
        return math.ceil(1000 * (max(self.period, _MEETING_SECONDS) if self.is_ready else _MEETING_SECONDS))

    def now(self) -> float:
        now = time.monotonic()
        if (passed := now - self._last_read) > 2 * BEAT_SECONDS:  # this process was stopped
            self._stopped += passed - BEAT_SECONDS
        self._last_read = now
        return now - self._stopped

    def due(self) -> float:
        """Seconds since the last beat, if another one is due; else 0."""
        passed = self.now() - self._last_beat
        if passed < self.period:
            return 0.0
        self._last_beat += passed
        return passed
