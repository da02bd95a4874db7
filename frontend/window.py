"""The door's high-water mark: of many requests, a window is submitted, and each leaves it when it is handed on.

However long the input, only so many requests are in memory; in input order, those that wait for one in front of them
count too. Shared by the blocking and the asynchronous calls, which differ in how they wait. Knows nothing of waiting.
"""

import itertools
from collections.abc import Iterator

from ..protocol.errors import same_error
from .asked import Asked
from .opened import Door, Notify, Request, Way

# Prompts tokenized and sent together: large enough to amortize, small enough that the engine starts at once.
_GROUP = 128


class Window:
    """`fill`, wait for a notification, `finish` it, hand on what is `ready`; `abandon` at the end, however it comes."""

    def __init__(
        self, client: Way, door: Door, asked: Iterator[Asked], notify: Notify, size: int, *, ordered: bool
    ) -> None:
        self.client = client
        self.door = door
        self.asked = asked
        self.size = size
        self.ordered = ordered
        self.running: dict[int, Request] = {}
        self._done: dict[int, Request] = {}  # by position
        self._following = 0  # the position to hand on next
        self._positions = itertools.count()
        self._has_more = True
        self._notify_owner = notify

    @property
    def is_over(self) -> bool:
        return not (self._has_more or self.running or self._done)

    def fill(self) -> None:
        """Admit and submit groups until the window is full; small gaps are left until a group fits."""
        while self._has_more and (room := self.size - len(self.running) - len(self._done)) > 0:
            if room < min(_GROUP, self.size // 4) and self.running:
                return
            group = list(itertools.islice(self.asked, min(_GROUP, room)))
            self._has_more = bool(group)
            self._submit(self.door.admit(group, self._notify))

    def _submit(self, admitted: list[Request]) -> None:
        good: list[Request] = []
        for request in admitted:
            request.position = next(self._positions)
            if request.is_finished:  # refused at the door
                self._done[request.position] = request
            else:
                self.running[request.request_id] = request
                good.append(request)
        if good:
            self.client.submit(good)

    def _notify(self, request: Request) -> None:
        if request.is_finished or request.error is not None:
            self._notify_owner(request)

    def finish(self, request: Request) -> None:
        del self.running[request.request_id]
        if request.error is not None:
            raise same_error(request.error)
        self._done[request.position] = request

    def ready(self) -> Iterator[Request]:
        """What may be handed on now."""
        if not self.ordered:
            while self._done:
                yield self._done.pop(next(iter(self._done)))
        while self._following in self._done:
            yield self._done.pop(self._following)
            self._following += 1

    def abandon(self) -> None:
        self.client.abort(self.running.values())
