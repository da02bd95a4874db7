"""The base of both transports to an engine: keeps the pending requests, and checks whether the engine can be used.

`tree/transport.py` talks to its own process tree, `attached/transport.py` to the daemon.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from ...protocol.errors import ClosedError, PenstockError, same_error
from ...protocol.stats import Stats
from ..requests.request import RequestT

CLOSED_MEANWHILE = "The LLM was closed while this request ran."


class Transport(ABC, Generic[RequestT]):
    def __init__(self) -> None:
        self.error: PenstockError | None = None  # why the other side ended
        self.is_closed = False
        self.on_close: Callable[[], None] = lambda: None  # for resources that end with it
        self._owner = os.getpid()
        self._pending: dict[int, RequestT] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def submit(self, requests: Sequence[RequestT]) -> None: ...

    @abstractmethod
    def abort(self, requests: Iterable[RequestT]) -> None:
        """Forget the requests and drop them on the other side; ended ones are ignored."""

    @abstractmethod
    def cancel(self, requests: Iterable[RequestT]) -> None:
        """End the requests; each still gets a last delta with its output so far."""

    @abstractmethod
    def stats(self) -> Stats: ...

    @abstractmethod
    def close(self) -> None:
        """Requests still running fail. Safe to call twice, and a no-op in a forked copy."""

    def find(self, request_id: int) -> RequestT | None:
        return self._pending.get(request_id)

    def _begin(self, requests: Iterable[RequestT]) -> None:
        with self._lock:
            self._pending.update((request.request_id, request) for request in requests)

    def _forget(self, request_ids: Iterable[int]) -> list[RequestT]:
        """Forget requests; returns those that have not ended."""
        with self._lock:
            found = [self._pending.pop(request_id, None) for request_id in request_ids]
        return [request for request in found if request is not None]

    def give_up(self) -> list[RequestT]:
        """Forget all requests, and return them."""
        return self._forget(list(self._pending))

    def _fail(self, request_ids: Iterable[int], error: PenstockError) -> None:
        for request in self._forget(request_ids):
            request.fail(error)

    # --- whether it can be used ----------------------------------------------------------------------------------

    @property
    def is_forked(self) -> bool:
        """Whether this is a copy in a forked process, where nobody reads."""
        return os.getpid() != self._owner

    @property
    def state(self) -> str:
        """The state in a few words, for a person."""
        if self.is_forked:
            return "a copy in a forked process"
        if self.error is not None:
            return f"dead ({(str(self.error).splitlines() or [''])[0]})"
        return "closed" if self.is_closed else "ready"

    def check(self) -> None:
        """Raise if this object can no longer be used, with the reason."""
        if self.is_forked:
            raise ClosedError(
                "This LLM belongs to the process that made it; the copy in a forked process cannot use it. "
                "Make the LLM in the process that uses it."
            )
        if self.error is not None:
            raise same_error(self.error)
        if self.is_closed:
            raise ClosedError("This LLM was closed. Make a new one.")
