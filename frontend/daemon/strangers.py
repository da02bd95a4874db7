"""How many connections there may be, and who goes where one more comes: whoever has waited longest without attaching.

Whoever wants a model says so at once, so a place is never long without a name. Knows nothing of what is said.
"""

from collections.abc import Iterable
from typing import Protocol

_MOST_STRANGERS = 64
# Each has descriptors, buffers and tasks; what it makes the daemon hold is charged to it besides.
_MOST_CONNECTIONS = 512


class Connection(Protocol):
    @property
    def is_stranger(self) -> bool: ...
    def hang_up(self) -> None: ...


def make_room(connections: Iterable[Connection]) -> str | None:
    """For one more among these, which stand in the order in which they came; a sentence where there is none."""
    every = list(connections)
    strangers = [connection for connection in every if connection.is_stranger]
    if len(every) >= _MOST_CONNECTIONS and not strangers:
        return f"The daemon has {_MOST_CONNECTIONS} clients, which is the most. Try again when some of them have left."
    if len(strangers) >= _MOST_STRANGERS or len(every) >= _MOST_CONNECTIONS:
        strangers[0].hang_up()
    return None
