"""Asks the children of a tree whether they are there: numbered pings, which a child answers in the page of heartbeats.

A child has one ping to answer at a time, so those that answer nothing pile up none. Any thread may ask.
Knows nothing of what follows where nobody answers.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from ..protocol.heartbeat import Heartbeats
from ..protocol.messages import Ping
from ..protocol.sockets import Outbox

_FIRST_LOOK, _LONGEST_LOOK = 0.0005, 0.05  # seconds until an answer is looked for


class RollCall:
    def __init__(self, directory: Path, roles: Iterable[str], heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        # All of them now: one that could not be made later would make a silent child of a healthy one.
        self._outboxes = {role: Outbox(directory, role.replace(" ", "")) for role in roles}
        self._asked = dict.fromkeys(self._outboxes, 0)
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_answered(self) -> bool:
        """Nobody has a ping left to answer."""
        return all(self._answered(role) >= asked for role, asked in self._asked.items())

    def ask(self, role: str) -> None:
        """Unless a ping is on its way."""
        with self._lock:
            if not self._is_closed and self._answered(role) >= self._asked[role]:
                self._asked[role] += 1
                self._outboxes[role].send(Ping(self._asked[role]))

    async def silent(self, seconds: float) -> list[str]:
        """Those who have not answered within so many seconds what they are asked now."""
        before = dict(self._asked)
        deadline, pause = time.monotonic() + seconds, _FIRST_LOOK
        while (left := self._unanswered(before)) and (remaining := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(pause, remaining))
            pause = min(2 * pause, _LONGEST_LOOK)
        return left

    def _unanswered(self, before: dict[str, int]) -> list[str]:
        """A ping that was on its way before says nothing of now: a new one follows it."""
        left = [role for role, number in before.items() if self._answered(role) <= number]
        for role in left:
            self.ask(role)
        return left

    def _answered(self, role: str) -> int:
        return self._heartbeats.read(role).answered

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for outbox in self._outboxes.values():
                outbox.close()
