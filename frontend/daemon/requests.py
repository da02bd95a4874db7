"""The requests of one client: admitted a group at a time, held until their last word is said, dropped when it leaves.

Knows nothing of frames, and of models no more than the session of one.
"""

import itertools
from collections import defaultdict
from contextlib import suppress

from ...protocol.attach import Failed, Failure, OutputDeltas
from ...protocol.errors import ClosedError, PenstockError
from ..requests.budget import BudgetError
from ..requests.pending_request import PendingRequest
from ..session.private import PrivateSession
from ..session.threads import Threads
from .asks import Arrived, Ask, Wanted
from .held import Held, bytes_of, refused
from .model import Model
from .models import Models
from .outbox import Outbox
from .room import Room


class Requests:
    def __init__(self, models: Models, room: Room, outbox: Outbox, measuring: Threads) -> None:
        self.seed: int | None = None  # the client's own, for requests that bring none
        self._seeds = itertools.count()
        self._models = models
        self._room = room
        self._outbox = outbox
        self._measuring = measuring
        self._held: dict[int, Held] = {}  # by the client's numbers

    def __len__(self) -> int:
        return len(self._held)

    async def ask(self, ask: Ask, model: Model | None) -> None:
        """A group at a time: what others ask for comes in between, and what there is no room for waits."""
        await self._measuring.run(ask.measure, client=self._room.client)
        for group in ask.groups():
            numbers = self._own_numbers(group)
            try:
                if model is None:
                    raise PenstockError("Attach to a model first.")
                if self._models.is_draining:
                    raise ClosedError("The daemon is shutting down and takes no new requests.")
                session = await model.ready()
                await self._admit(ask, group, session)
            except PenstockError as error:
                self._outbox.say(Failed(numbers, Failure.of(error)))
                self.drop(numbers)

    def _own_numbers(self, group: list[Arrived]) -> list[int]:
        """Those that no other request has. One that has another's is refused: what is said could be of either."""
        numbers: dict[int, None] = {}
        for one in group:
            if one.number in self._held or one.number in numbers:
                one.refusal = f"Another request of this connection has the number {one.number}, and it runs."
            else:
                numbers[one.number] = None
        return list(numbers)

    async def _admit(self, ask: Ask, group: list[Arrived], session: PrivateSession) -> None:
        num_bytes = sum(one.num_bytes for one in group)
        try:
            await self._room.take_when_free(num_bytes)
        except BudgetError as error:
            self._outbox.say(OutputDeltas([refused(one.number, 1, 429, str(error)) for one in group]))
            return
        try:
            client = self._room.client
            wanted = await ask.wanted(group, session, client)
            admitted = await session.threads.texts.run(self._admitted, wanted, session, client=client)
            await self._submit(admitted, session)
        finally:
            self._room.give(num_bytes)

    async def _submit(self, admitted: list[Held], session: PrivateSession) -> None:
        """Those for which there is room; before one waits for it, those before it are on their way."""
        ready: list[Held] = []
        for held in admitted:
            try:
                held.keep(self._room)
            except BudgetError:
                session.transport.submit([each.pending for each in ready])
                ready = []
                await self._kept(held)
            if held.refusal is not None or held.pending.is_finished:
                self._outbox.note(held)
            else:
                self._held[held.number] = held
                ready.append(held)
        session.transport.submit([each.pending for each in ready])

    async def _kept(self, held: Held) -> None:
        try:
            await held.keep_when_free(self._room)
        except BudgetError as error:
            held.refuse(error)

    def _admitted(self, wanted: list[Wanted], session: PrivateSession) -> list[Held]:
        """Tokenized and checked; in a thread."""
        # Seeds are counted for each client, across restarts of the tree.
        door = session.door.counting_for(self.seed, self._seeds).of(self._room.client)
        by_pending: dict[int, Held] = {}

        def notify(pending: PendingRequest) -> None:
            self._outbox.note(by_pending[pending.request_id])

        for is_streamed in (False, True):
            some = [one for one in wanted if one.is_streamed is is_streamed]
            for one, pending in zip(some, door.admit([one.asked for one in some], notify, is_streamed=is_streamed)):
                num_bytes = bytes_of(pending) + one.num_bytes
                held = Held(one.number, pending, session, is_streamed, one.asked.is_chat, num_bytes)
                by_pending[pending.request_id] = held
        return list(by_pending.values())

    def forget(self, held: Held) -> None:
        if self._held.get(held.number) is held:
            del self._held[held.number]

    def drop(self, numbers: list[int]) -> None:
        dropped: defaultdict[PrivateSession, list[PendingRequest]] = defaultdict(list)
        for number in numbers:
            if (held := self._held.pop(number, None)) is not None:
                held.end()
                dropped[held.session].append(held.pending)
                self._room.give(held.hand_over())
        for session, pendings in dropped.items():
            session.transport.abort(pendings)

    def drop_all(self) -> None:
        """Nobody waits for their answers any more."""
        self.drop(list(self._held))

    def cancel(self, numbers: list[int]) -> None:
        for number in numbers:
            if (held := self._held.get(number)) is not None:
                with suppress(PenstockError):
                    held.session.transport.cancel([held.pending])
