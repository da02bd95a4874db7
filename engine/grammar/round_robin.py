"""Items that clients wait for, handed out to one client after another: many items of one client delay no other
client."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class RoundRobin(Generic[Item]):
    def __init__(self, size: Callable[[Item], int] = lambda item: 1) -> None:
        self._size = size
        # Each client's items with their arrival times; the clients are in the order of their turns.
        self._lines: dict[str, dict[Item, float]] = {}
        # When each of those clients had its last turn.
        self._last_turns: dict[str, float] = {}
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def num_of(self, client: str) -> int:
        return len(self._lines.get(client, ()))

    def size_of(self, client: str) -> int:
        return self._sizes[client]

    def put(self, client: str, item: Item, now: float = 0.0) -> None:
        line = self._lines.setdefault(client, {})
        if item not in line:
            line[item] = now
            self._sizes[client] += self._size(item)

    def drop(self, client: str, item: Item) -> None:
        """Remove an item, if it is still there."""
        line = self._lines.get(client, {})
        if item not in line:
            return
        del line[item]
        self._sizes[client] -= self._size(item)
        if not line:
            del self._lines[client], self._sizes[client]
            self._last_turns.pop(client, None)

    def drop_all(self, item: Item) -> None:
        """Remove an item for all clients that wait for it."""
        for client in list(self._lines):
            self.drop(client, item)

    def take(self, now: float = 0.0, may_have: Callable[[str], bool] = lambda client: True) -> tuple[str, Item] | None:
        """Remove and return the oldest item of the next client in turn that `may_have` one."""
        client = next(filter(may_have, self._lines), None)
        if client is None:
            return None
        item = next(iter(self._lines[client]))
        self.drop(client, item)
        if client in self._lines:  # its next turn comes after all others'
            self._lines[client] = self._lines.pop(client)
            self._last_turns[client] = now
        return client, item

    def oldest(self) -> Iterator[tuple[float, str, Item]]:
        """Each client's oldest item, and since when the client has been waiting for a turn."""
        for client, line in self._lines.items():
            item, came = next(iter(line.items()))
            yield max(came, self._last_turns.get(client, came)), client, item
