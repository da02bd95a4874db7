"""The connections that are open, and which of them makes room for a new one.

A connection whose client owes something is silent: it waits for a request, or for the rest of a body. Where all places
are taken, the one that has waited longest for a request goes, then the one that has waited longest for a body; but
within its first second neither gives way while another can. So clients that say nothing, or never end what they say,
keep nobody out. One whose answer is computed or not read yet is busy, and never goes.
"""

import asyncio
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

Group = dict["Connection", float]  # since when it belongs there; those that came first stand first
# So long a client takes at most to send what it is about to send, wherever it is.
_GRACE_SECONDS = 1.0


class OpenConnections:
    def __init__(self, most: int) -> None:
        # The other half of the process's descriptors is left for its models, files and children.
        self._most = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self.waiting: Group = {}
        self.sending: Group = {}
        self.busy: Group = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._clock = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sending) + len(self.busy)

    def enter(self, connection: "Connection") -> bool:
        """Take a place; False where all others are busy."""
        if len(self) >= self._most and not self.make_room():
            return False
        self.waiting[connection] = self._clock()
        self._is_empty.clear()
        return True

    def move(self, connection: "Connection", group: Group) -> None:
        """As the last of that group."""
        self._remove(connection)
        group[connection] = self._clock()

    def leave(self, connection: "Connection") -> None:
        self._remove(connection)
        if not len(self):
            self._is_empty.set()

    def all(self) -> list["Connection"]:
        return [*self.waiting, *self.sending, *self.busy]

    async def closed(self) -> None:
        """Returns when none is open."""
        await self._is_empty.wait()

    def make_room(self) -> bool:
        longest = [found for group in (self.waiting, self.sending) if (found := _longest(group)) is not None]
        if not longest:
            return False
        latest = self._clock() - _GRACE_SECONDS
        connection, _ = next((found for found in longest if found[1] < latest), longest[0])
        connection.abort()
        self.leave(connection)
        return True

    def _remove(self, connection: "Connection") -> None:
        for group in (self.waiting, self.sending, self.busy):
            group.pop(connection, None)


def _longest(group: Group) -> tuple["Connection", float] | None:
    """Of those that can give way."""
    return next((item for item in group.items() if not item[0].has_unread_answer), None)
