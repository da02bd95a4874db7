"""The requests of a model that outlive its process tree.

When a tree dies, its requests come here, wait until the model has been started again, and go on in the new tree from
what they had said. A request that was being computed at two deaths fails with the cause, and all that wait do if the
model can't be started. If the model's files have changed, those that were made for the earlier ones fail. Whoever
aborts or ends a request asks the transport that it was submitted to, however long ago its tree has died; the transport
passes that on to here.
"""

import itertools
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from ...protocol.errors import EngineDeadError, PenstockError, same_error
from ..models.file_stamps import FileStamps
from ..requests.pending_request import PendingRequest
from ..requests.prompts import ParsedPrompt
from ..session.engine_transport import EngineTransport
from ..session.private import PrivateSession
from ..session.tree import going_on

_MOST_DEATHS = 1


class Survivors:
    """Any thread may call it. Between two trees its requests wait here; otherwise the newest transport has them."""

    def __init__(self) -> None:
        self._numbers = itertools.count()  # of requests, in all trees
        self._waiting: dict[int, PendingRequest] = {}
        self._session: PrivateSession | None = None  # whose tree lives
        self._error: PenstockError | None = None  # why the model was not started again
        self._files: FileStamps = frozenset()  # that the newest tree has read
        self._edition = 0  # of these files
        self._doors: list[PrivateSession] = []
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._waiting)

    # --- the model --------------------------------------------------------------------------------------------------

    def keep_door(self, session: PrivateSession) -> None:
        """Let requests that are at the door of a session whose tree has died be prepared there to the end."""
        session.transport.on_close = lambda: None
        self._files = session.stamps
        self._doors.append(session)

    def go_on(self, session: PrivateSession) -> None:
        """Submit those that wait, in their order, to a tree that is ready; those with media once they are decoded."""
        with self._lock:
            self._session, self._error = session, None
            is_same = self._files == session.stamps
            self._files, self._edition = session.stamps, self._edition + (not is_same)
            session.transport.heir, session.transport.edition = self, self._edition
            session.door.numbers = self._numbers
            waiting = [self._waiting[number] for number in sorted(self._waiting)]
            if not is_same:
                self._end(waiting, changed())
            else:
                self._resume(waiting, session)
        self._close_doors()

    def fail(self, error: PenstockError) -> None:
        """End those that wait, because the model isn't started again."""
        with self._lock:
            self._session, self._error = None, error
            self._end(list(self._waiting.values()), error)
        self._close_doors()

    def _close_doors(self) -> None:
        for session in self._doors:
            threading.Thread(target=session.close_helpers, name="penstock-close", daemon=True).start()
        self._doors.clear()

    def _resume(self, requests: Sequence[PendingRequest], session: PrivateSession) -> None:
        ready: list[PendingRequest] = []
        for request in requests:
            if going_on.needs_media(request):
                self._decode(request, session)
            else:
                ready.append(request)
        self._submit(ready, session)

    def _decode(self, request: PendingRequest, session: PrivateSession) -> None:
        try:
            media = going_on.decoded_again(session, request)
        except Exception as error:
            self._end([request], going_on.unreadable(error))
        else:
            media.add_done_callback(partial(self._submit_decoded, request, session))

    def _submit_decoded(
        self, request: PendingRequest, session: PrivateSession, decoded: "Future[ParsedPrompt]"
    ) -> None:
        with self._lock:
            if self._session is not session:  # if there is another one, that decodes them again
                return
            if (error := going_on.take_media(request, decoded)) is not None:
                self._end([request], error)
            else:
                self._submit([request], session)

    def _submit(self, requests: Iterable[PendingRequest], session: PrivateSession) -> None:
        """Submit those of the requests that still wait."""
        ready = [request for each in requests if (request := self._waiting.pop(each.request_id, None)) is not None]
        if not ready:
            return
        try:
            session.transport.submit(ready)
            session.transport.end_samples(ready)
        except PenstockError as error:  # it has been closed meanwhile
            for request in ready:
                request.fail(same_error(error))

    def _end(self, requests: Iterable[PendingRequest], error: PenstockError) -> None:
        for each in requests:
            if (request := self._waiting.pop(each.request_id, None)) is not None:
                request.fail(same_error(error))

    # --- the transports, as their `Heir` ----------------------------------------------------------------------------

    def prepare(self, requests: Sequence[PendingRequest]) -> None:
        going_on.prepare(requests)

    def take_over(self, transport: EngineTransport, error: PenstockError) -> None:
        with self._lock:  # which whoever aborts one of them waits for, or else has aborted it before
            requests = transport.give_up()
            if self._session is not None and self._session.transport is transport:
                self._session = None
            self._waiting.update((request.request_id, request) for request in requests)
            for request in requests:
                self._settle(request, error)
            if transport.edition != self._edition:
                self._end(requests, changed())
            if self._error is not None:  # it is known already that the model isn't started again
                self._end(requests, self._error)
            if self._session is not None:  # so is its next tree: they were being submitted when theirs died
                self._resume([request for request in requests if request.request_id in self._waiting], self._session)

    def _settle(self, request: PendingRequest, error: PenstockError) -> None:
        """End a request whose tree has died, unless it is to go on; prepare it for that."""
        if request.is_cancelled:
            self._cancel(request)
        elif (end := going_on.end_after_death(request, error, _MOST_DEATHS)) is not None:
            self._end([request], end)

    def submit(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None:
        with self._lock:
            if transport.edition != self._edition:
                for request in requests:
                    request.fail(changed())
                return
            if (other := self._other(transport)) is not None:
                other.submit(requests)
                return
            self._waiting.update((request.request_id, request) for request in requests)
            if self._error is not None:
                self._end(requests, self._error)

    def abort(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None:
        with self._lock:
            for request in requests:
                self._waiting.pop(request.request_id, None)
            if (other := self._other(transport)) is not None:
                other.abort(requests)

    def cancel(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None:
        with self._lock:
            for request in requests:
                self._cancel(request)
            if (other := self._other(transport)) is not None:
                other.cancel(requests)

    def _other(self, transport: EngineTransport) -> EngineTransport | None:
        """The transport of the tree that has followed, if it is ready."""
        newest = None if self._session is None else self._session.transport
        return None if newest is transport else newest

    def _cancel(self, request: PendingRequest) -> None:
        """End a request that waits with its output so far."""
        if self._waiting.pop(request.request_id, None) is not None:
            going_on.end_cancelled(request)


def changed() -> PenstockError:
    """The error of what was made for other files than the newest tree has read."""
    return EngineDeadError(
        "The model's processes died and were started again from files that have changed since. Load the model again."
    )
