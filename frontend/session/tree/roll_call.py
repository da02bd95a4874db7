"""Pings the processes of a tree: numbered pings, answered in the page of heartbeats.

A child has at most one unanswered ping, so pings to a silent one don't pile up. Any thread may ask.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ....protocol.processes.heartbeat import Heartbeats, Ping
from ....protocol.processes.sockets import Outbox

_FIRST_LOOK, _LONGEST_LOOK = 0.0005, 0.05  # seconds between two checks for an answer
_STOPPED_SECONDS = 0.5  # time for a stopped process to be resumed


class RollCall:
    def __init__(self, directory: Path, roles: Iterable[str], heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        # All of them now: if one could not be opened later, a healthy child would seem silent.
        self._outboxes = {role: Outbox(directory, role.replace(" ", "")) for role in roles}
        self._num_pings = dict.fromkeys(self._outboxes, 0)
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_answered(self) -> bool:
        """Whether no process has an unanswered ping."""
        return not any(map(self.is_awaited, self._num_pings))

    def is_awaited(self, role: str) -> bool:
        """Whether the process has an unanswered ping."""
        return self._heartbeats.read(role).answered < self._num_pings[role]

    def ask(self, role: str) -> None:
        """Send a ping, unless one is unanswered."""
        with self._lock:
            if not self._is_closed and not self.is_awaited(role):
                self._num_pings[role] += 1
                self._outboxes[role].send(Ping(self._num_pings[role]))

    async def silent(self, seconds: float, is_stopped: Callable[[str], bool]) -> list[str]:
        """The roles that have not answered a ping within this time; stopped processes have less."""
        import asyncio  # takes as long as half of the other imports of a start, and few scripts need it

        before = dict(self._num_pings)
        start, pause = time.monotonic(), _FIRST_LOOK
        while (left := self._unanswered(before)) and (passed := time.monotonic() - start) < seconds:
            if self._is_closed:  # the tree has ended: nobody will answer, and the caller knows why
                break
            if passed > _STOPPED_SECONDS and all(map(is_stopped, left)):
                break
            await asyncio.sleep(min(pause, seconds - passed))
            pause = min(2 * pause, _LONGEST_LOOK)
        return left

    def _unanswered(self, before: dict[str, int]) -> list[str]:
        """Wait for current answers: an earlier ping says nothing about now, so a new one follows it."""
        left = [role for role, number in before.items() if self._heartbeats.read(role).answered <= number]
        for role in left:
            self.ask(role)
        return left

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for outbox in self._outboxes.values():
                outbox.close()
