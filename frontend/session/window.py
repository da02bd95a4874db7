"""`Window`: the many requests of a batch call, of which a limited number is submitted at a time."""

import itertools
from collections.abc import Iterator
from typing import Generic

from ...protocol.errors import PenstockError, same_error
from ...protocol.outputs import RequestOutput
from ..requests.prompts import ParsedPrompt
from ..requests.request import DoorProtocol, Notify, RequestT
from .transport import Transport

# Prompts tokenized and sent together: large enough to amortize, small enough that the engine starts at once.
_GROUP = 128
# Bytes of pictures, in the engine's form, of all requests in a window.
_MOST_MEDIA_BYTES = 256 << 20


class Window(Generic[RequestT]):
    """Many requests, a limited number of which is submitted; each leaves when its output is passed on.

    Repeat: `fill`, `finish` requests that have notified, pass on those that are `ready`; always `abandon` at the end.
    However long the input, only a limited number of requests is in memory; in input order, that includes those waiting
    for an earlier one. Blocking and asynchronous calls share this class, and differ in how they wait.

    An error that ends the tree is raised by `ready`, after all requests that finished before it were passed on.
    """

    def __init__(
        self,
        transport: Transport[RequestT],
        door: DoorProtocol[RequestT],
        prompts: Iterator[ParsedPrompt],
        notify: Notify,
        size: int,
        *,
        ordered: bool,
    ) -> None:
        self.transport = transport
        self.door = door
        self.prompts = prompts
        self.size = size
        self.ordered = ordered
        self.running: dict[int, RequestT] = {}
        self._done: dict[int, RequestT] = {}  # by position
        self._following = 0  # the position to pass on next
        self._positions = itertools.count()
        self._has_more = True
        self._error: PenstockError | None = None
        self._notify_owner = notify
        self._media_bytes = 0  # of running requests

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
            if (room < min(_GROUP, self.size // 4) or self._media_bytes >= _MOST_MEDIA_BYTES) and self.running:
                return
            group = list(_until_media(itertools.islice(self.prompts, min(_GROUP, room))))
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
                self._media_bytes += request.media_bytes
                good.append(request)
        if good:
            self.transport.submit(good)

    def _notify(self, request: RequestT) -> None:
        if request.is_finished or request.error is not None:
            self._notify_owner(request)

    def finish(self, request: RequestT) -> None:
        if request.error is None:
            self._done[request.position] = request
        elif self._error is None:
            self._error = same_error(request.error)
        del self.running[request.request_id]
        self._media_bytes -= request.media_bytes

    def ready(self) -> Iterator[tuple[int, RequestOutput]]:
        """Positions in the input, and outputs, that may be passed on now."""
        if not self.ordered:
            while self._done:
                position = next(iter(self._done))
                yield position, self._done.pop(position).take()
        while self._following in self._done:
            yield self._following, self._done.pop(self._following).take()
            self._following += 1
        if self._error is not None:
            raise self._error

    def take_arrived(self, outputs: dict[int, RequestOutput]) -> None:
        """Add finished requests that were not passed on, by position: for a call that ends early."""
        finished = [request for request in self.running.values() if request.is_finished and request.error is None]
        for request in [*self._done.values(), *finished]:
            if request.position not in outputs and request.is_fresh:
                outputs[request.position] = request.take()

    def abandon(self) -> None:
        self.transport.abort(self.running.values())


def _until_media(prompts: Iterator[ParsedPrompt]) -> Iterator[ParsedPrompt]:
    """The next prompts, up to the first with pictures."""
    for prompt in prompts:
        yield prompt
        if prompt.has_media:
            return
