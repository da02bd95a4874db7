"""Where the requests of a tree that has died go: to the other trees, from the tokens that they have said.

The heir of every tree of `Replicas`. Whoever aborts or ends a request asks all trees and those that wait
(`replicas.py`), so a dead tree's transport has nothing to pass on.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.errors import PenstockError, same_error
from ..requests.pending_request import PendingRequest
from ..requests.prompts import ParsedPrompt
from ..session.engine_transport import EngineTransport
from ..session.tree import going_on

if TYPE_CHECKING:
    from .replicas import Replicas

# A request that was being computed at more deaths, without a token more between them, fails: it may be what kills the
# trees, and would end them all. Other requests get on meanwhile.
MOST_DEATHS = 3
_CAUSE = "The processes that computed this answer died"


class Moves:
    def __init__(self, replicas: "Replicas") -> None:
        self._replicas = replicas
        self._decoding: set[int] = set()  # requests whose media are being decoded again

    def prepare(self, requests: Sequence[PendingRequest]) -> None:
        going_on.prepare(requests)

    def take_over(self, transport: EngineTransport, error: PenstockError) -> None:
        with self._replicas.turn:
            self._shut(transport)
            requests = sorted(transport.give_up(), key=lambda request: request.request_id)
            self._go_on([request for request in requests if self._outlives(request, error)])

    def submit(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None:
        """Its tree died before it had them."""
        with self._replicas.turn:
            self._shut(transport)
            self._give(requests)

    def abort(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None: ...
    def cancel(self, transport: EngineTransport, requests: Sequence[PendingRequest]) -> None: ...

    def ready_to_go(self, request_ids: Iterable[int]) -> list[PendingRequest]:
        """Take these out of those that wait, except where media are still decoded."""
        return self._replicas.take_waiting(number for number in request_ids if number not in self._decoding)

    def _shut(self, transport: EngineTransport) -> None:
        for replica in self._replicas.replicas:
            if replica.transport is transport:
                replica.shut()

    def _outlives(self, request: PendingRequest, error: PenstockError) -> bool:
        """Whether a request goes on; ends it otherwise."""
        if request.is_cancelled:
            going_on.end_cancelled(request)
            return False
        if request.num_generated > request.num_at_death:
            request.deaths = 0
        request.num_at_death = request.num_generated
        end = going_on.end_after_death(request, error, MOST_DEATHS, _CAUSE)
        if end is not None:
            request.fail(same_error(end))
        return end is None

    def _go_on(self, requests: Sequence[PendingRequest]) -> None:
        whole: list[PendingRequest] = []
        undecoded: list[PendingRequest] = []
        for request in requests:
            (undecoded if going_on.needs_media(request) else whole).append(request)
        self._give(whole)
        for request in undecoded:
            self._decode(request)

    def _decode(self, request: PendingRequest) -> None:
        self._replicas.keep_waiting([request])
        self._decoding.add(request.request_id)
        try:
            decoded = self._replicas.decode_again(request)
        except Exception as error:
            self._decoding.discard(request.request_id)
            self._fail(request, going_on.unreadable(error))
        else:
            decoded.add_done_callback(partial(self._decoded, request))

    def _decoded(self, request: PendingRequest, decoded: "Future[ParsedPrompt]") -> None:
        with self._replicas.turn:
            self._decoding.discard(request.request_id)
            if (error := going_on.take_media(request, decoded)) is not None:
                self._fail(request, error)
            else:
                self._give(self._replicas.take_waiting([request.request_id]))  # unless it was aborted meanwhile

    def _fail(self, request: PendingRequest, error: PenstockError) -> None:
        for each in self._replicas.take_waiting([request.request_id]):
            each.fail(same_error(error))

    def _give(self, requests: Sequence[PendingRequest]) -> None:
        if not requests:
            return
        try:
            self._replicas.give(requests)
        except PenstockError as error:  # they are being closed
            for request in requests:
                request.fail(same_error(error))
