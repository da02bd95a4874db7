"""The open connections, and which of them is closed to make room for a new one.

If all slots are taken, the connection that has waited longest for a request is closed, otherwise the one that has
waited longest for the rest of a body. Those that have waited less than a second are closed only if there are no others.
So clients that send nothing, or never finish a request, keep nobody out. A connection is busy, and never closed, while
its answer is computed or unread.
"""

import asyncio
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

Group = dict["Connection", float]  # connection → when it joined the group, in that order
# How long a client may take to send a request that it is about to send.
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
        """Take a slot; False if busy connections have all of them."""
        if len(self) >= self._most and not self.make_room():
            return False
        self.waiting[connection] = self._clock()
        self._is_empty.clear()
        return True

    def move(self, connection: "Connection", group: Group) -> None:
        """Move a connection to the end of a group."""
        self._remove(connection)
        group[connection] = self._clock()

    def leave(self, connection: "Connection") -> None:
        self._remove(connection)
        if not len(self):
            self._is_empty.set()

    def all(self) -> list["Connection"]:
        return [*self.waiting, *self.sending, *self.busy]

    async def closed(self) -> None:
        """Returns when no connection is open."""
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
    """The connection that has been longest in the group, except those with an unread answer."""
    return next((item for item in group.items() if not item[0].has_unread_answer), None)
