"""The requests of one client: admitted a group at a time, and dropped when the client leaves."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ....protocol.attach import Failed, OutputDeltas
from ....protocol.errors import ClosedError, Failure, PenstockError
from ....protocol.messages import Said
from ...requests.budget import BudgetError
from ...requests.pending_request import PendingRequest
from ...session.private import PrivateSession
from ...session.threads import Threads
from ..model import DaemonModel
from ..models import DaemonModels
from ..survivors import changed
from .client_budget import ClientBudget
from .daemon_request import DaemonRequest, bytes_of, refused
from .outbox import ClientOutbox
from .request_batch import PackedRequest, RequestBatch, UnpackedRequest


class Requests:
    def __init__(self, models: DaemonModels, budget: ClientBudget, outbox: ClientOutbox, measuring: Threads) -> None:
        self.seed: int | None = None  # the client's own, for requests without a seed
        self.edition: int | None = None  # of the files that the client's model had when it attached
        self._seeds = itertools.count()
        self._models = models
        self._budget = budget
        self._outbox = outbox
        self._measuring = measuring
        self._running: dict[int, DaemonRequest] = {}  # by the client's numbers

    def __len__(self) -> int:
        return len(self._running)

    async def ask(self, batch: RequestBatch, model: DaemonModel | None) -> None:
        """Admit a batch in groups: other clients are served in between, and a group waits until there is room for
        it."""
        await self._measuring.run(batch.measure, client=self._budget.client)
        for group in batch.groups():
            numbers = self._own_numbers(group)
            try:
                if model is None:
                    raise PenstockError("Attach to a model first.")
                if self._models.is_draining:
                    raise ClosedError("The daemon is shutting down and takes no new requests.")
                session = await model.ready()
                if session.transport.edition != self.edition:
                    raise changed()
                await self._admit(batch, group, session)
            except PenstockError as error:
                self._outbox.say(Failed(numbers, Failure.of(error)))
                self.drop(numbers)

    def _own_numbers(self, group: list[PackedRequest]) -> list[int]:
        """The group's numbers; a request with a number already in use is refused, as its news could belong to
        either."""
        numbers: dict[int, None] = {}
        for one in group:
            if one.number in self._running or one.number in numbers:
                one.refusal = f"Another request of this connection has the number {one.number}, and it runs."
            else:
                numbers[one.number] = None
        return list(numbers)

    async def _admit(self, batch: RequestBatch, group: list[PackedRequest], session: PrivateSession) -> None:
        num_bytes = sum(one.num_bytes for one in group)
        try:
            await self._budget.take_when_free(num_bytes)
        except BudgetError as error:
            self._outbox.say(OutputDeltas([refused(one.number, 1, 429, str(error)) for one in group]))
            return
        try:
            client = self._budget.client
            unpacked = await batch.unpacked(group, session, client)
            for some in _apart(unpacked):
                threads = session.threads.media if some[0].asked.has_media else session.threads.texts
                admitted = await threads.run(self._admitted, some, session, client=client)
                await self._submit(admitted, session)
        finally:
            self._budget.give(num_bytes)

    async def _submit(self, admitted: list[DaemonRequest], session: PrivateSession) -> None:
        """Submit as many as there is room for. Before a request waits for room, those before it are submitted."""
        ready: list[DaemonRequest] = []
        for request in admitted:
            try:
                request.keep(self._budget)
            except BudgetError:
                session.transport.submit([each.pending for each in ready])
                ready = []
                await self._kept(request)
            if request.refusal is not None or request.pending.is_finished:
                self._outbox.note(request)
            else:
                self._running[request.number] = request
                ready.append(request)
        session.transport.submit([each.pending for each in ready])

    async def _kept(self, request: DaemonRequest) -> None:
        try:
            await request.keep_when_free(self._budget)
        except BudgetError as error:
            request.refuse(error)

    def _admitted(self, unpacked: list[UnpackedRequest], session: PrivateSession) -> list[DaemonRequest]:
        """Tokenize and check the requests; runs in a thread."""
        # Seeds are counted for each client, across restarts of the tree.
        door = session.door.counting_for(self.seed, self._seeds).of(self._budget.client)
        by_pending: dict[int, DaemonRequest] = {}

        def notify(pending: PendingRequest) -> None:
            self._outbox.note(by_pending[pending.request_id])

        for is_streamed in (False, True):
            some = [one for one in unpacked if one.is_streamed is is_streamed]
            for one, pending in zip(some, door.admit([one.asked for one in some], notify, is_streamed=is_streamed)):
                num_bytes = bytes_of(pending) + one.num_bytes
                known = _known(one.asked.said, pending.prompt.params.n) if one.asked.delta_tokens else None
                request = DaemonRequest(one.number, pending, session, is_streamed, one.asked.is_chat, known, num_bytes)
                by_pending[pending.request_id] = request
        return list(by_pending.values())

    def forget(self, request: DaemonRequest) -> None:
        if self._running.get(request.number) is request:
            del self._running[request.number]

    def drop(self, numbers: list[int]) -> None:
        dropped: defaultdict[PrivateSession, list[PendingRequest]] = defaultdict(list)
        for number in numbers:
            if (request := self._running.pop(number, None)) is not None:
                request.end()
                dropped[request.session].append(request.pending)
                self._budget.give(request.hand_over())
        for session, pendings in dropped.items():
            session.transport.abort(pendings)

    def drop_all(self) -> None:
        """Abort all requests, because the client has left."""
        self.drop(list(self._running))

    def cancel(self, numbers: list[int]) -> None:
        for number in numbers:
            if (request := self._running.get(number)) is not None:
                with suppress(PenstockError):
                    request.session.transport.cancel([request.pending])


def _known(said: Sequence[Said], num_samples: int) -> list[Said]:
    """Return what the client knows of each sample, because it has sent it."""
    return [*said, *(Said(b"") for _ in range(num_samples))][:num_samples]


def _apart(unpacked: list[UnpackedRequest]) -> Iterator[list[UnpackedRequest]]:
    """Split off those with media, since their pixels take memory before they can be charged."""
    together: list[UnpackedRequest] = []
    for one in unpacked:
        if not one.asked.has_media:
            together.append(one)
            continue
        if together:
            yield together
            together = []
        yield [one]
    if together:
        yield together
