"""The connections that are open, and which of them makes room for a new one.

A connection whose client owes something is silent: it waits for a request, or for the rest of a body. Where all places
are taken, the one that has waited longest for a request goes, then the one that has waited longest for a body; so
clients that say nothing never keep others out. One whose answer is computed or not read yet is busy, and never goes.
"""

import asyncio
import resource
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

Group = dict["Connection", None]  # those that came to it first stand first


class OpenConnections:
    def __init__(self, most: int) -> None:
        # The other half of the process's descriptors is left for its models, files and children.
        self._most = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self.waiting: Group = {}
        self.sending: Group = {}
        self.busy: Group = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sending) + len(self.busy)

    def enter(self, connection: "Connection") -> bool:
        """Take a place; False where all others are busy."""
        if len(self) >= self._most and not self.make_room():
            return False
        self.waiting[connection] = None
        self._is_empty.clear()
        return True

    def move(self, connection: "Connection", group: Group) -> None:
        """As the last of that group."""
        self._remove(connection)
        group[connection] = None

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
        for connection in chain(self.waiting, self.sending):
            if not connection.has_unread_answer:
                connection.abort()
                self.leave(connection)
                return True
        return False

    def _remove(self, connection: "Connection") -> None:
        for group in (self.waiting, self.sending, self.busy):
            group.pop(connection, None)
