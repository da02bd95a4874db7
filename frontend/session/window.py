"""A window of many requests: so many are submitted, and each leaves it when its output is handed on.

However long the input, only so many requests are in memory; in input order, those that wait for one in front of them
count too. Shared by the blocking and the asynchronous calls, which differ in how they wait.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Generic

from ...protocol.errors import PenstockError, same_error
from ...protocol.outputs import RequestOutput
from ..requests.prompts import ParsedPrompt
from ..requests.request import DoorProtocol, Notify, RequestT
from .transport import Transport

# Prompts tokenized and sent together: large enough to amortize, small enough that the engine starts at once.
_GROUP = 128


class Window(Generic[RequestT]):
    """`fill`, `finish` what notified, hand on what is `ready`; `abandon` at the end, however it comes.

    What ends the tree is raised by `ready`, after everything that had finished before it was handed on.
    """

    def __init__(
        self,
        transport: Transport[RequestT],
        door: DoorProtocol[RequestT],
        prompts: Iterator[ParsedPrompt],
        notify: Notify,
        size: int,
        take: Callable[[RequestT], RequestOutput],
        *,
        ordered: bool,
    ) -> None:
        self.transport = transport
        self.door = door
        self.prompts = prompts
        self.size = size
        self.take = take
        self.ordered = ordered
        self.running: dict[int, RequestT] = {}
        self._done: dict[int, RequestT] = {}  # by position
        self._following = 0  # the position to hand on next
        self._positions = itertools.count()
        self._has_more = True
        self._error: PenstockError | None = None
        self._notify_owner = notify

    @property
    def is_over(self) -> bool:
        return not (self._has_more or self.running or self._done or self._error)

    def fill(self) -> None:
        """Admit and submit groups until the window is full; small gaps are left until a group fits."""
        try:
            self._fill()
        except PenstockError as error:
            self._error = error

    def _fill(self) -> None:
        while self._has_more and self._error is None and (room := self.size - len(self.running) - len(self._done)) > 0:
            if room < min(_GROUP, self.size // 4) and self.running:
                return
            group = list(itertools.islice(self.prompts, min(_GROUP, room)))
            self._has_more = bool(group)
            self._submit(self.door.admit(group, self._notify))

    def _submit(self, admitted: list[RequestT]) -> None:
        good: list[RequestT] = []
        for request in admitted:
            request.position = next(self._positions)
            if request.is_finished:  # refused at the door
                self._done[request.position] = request
            else:
                self.running[request.request_id] = request
                good.append(request)
        if good:
            self.transport.submit(good)

    def _notify(self, request: RequestT) -> None:
        if request.is_finished or request.error is not None:
            self._notify_owner(request)

    def finish(self, request: RequestT) -> None:
        del self.running[request.request_id]
        if request.error is None:
            self._done[request.position] = request
        elif self._error is None:
            self._error = same_error(request.error)

    def ready(self) -> Iterator[tuple[int, RequestOutput]]:
        """Positions in the input and outputs that may be handed on now."""
        if not self.ordered:
            while self._done:
                position = next(iter(self._done))
                yield position, self.take(self._done.pop(position))
        while self._following in self._done:
            yield self._following, self.take(self._done.pop(self._following))
            self._following += 1
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        self.transport.abort(self.running.values())
