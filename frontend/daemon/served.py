"""One client of the daemon, from its first frame to the end of its stream.

Three tasks: one reads frames, one works them off in their order, one writes. When any of them ends, which the end of
the client's stream makes happen however it came, all requests of the client are aborted and its lease is given back,
and with it all that it made the daemon hold. Knows nothing of models beyond a lease on one.
"""

import asyncio
import itertools
import select
from contextlib import suppress
from typing import Any

import msgspec

from ...protocol.attach import (
    ATTACH_PROTOCOL,
    Attach,
    Attached,
    Cancel,
    Declined,
    Drop,
    Failed,
    Failure,
    PackedAsk,
    Pieces,
    frame,
)
from ...protocol.errors import ClosedError, ConfigError, PenstockError
from .. import logs
from ..budget import Budget, BudgetError
from ..pending import Pending
from ..session import Session
from .agreement import disagreement
from .asks import Arrived, Ask, Wanted
from .frames import Frame, Frames
from .held import Held, bytes_of, refused
from .model import Model
from .models import Models, UnknownModelError
from .outbox import Outbox
from .questions import Answers
from .room import Room

# Questions of a client whose answers it has not taken yet; then the client waits.
_QUESTIONS = 16
# Who is sent away has so long to hear why.
_FAREWELL_SECONDS = 1.0
_numbers = itertools.count()


class Served:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        models: Models,
        answers: Answers,
        budget: Budget,
    ) -> None:
        self.models = models
        self.model: Model | None = None
        self._answers = answers
        self._writer = writer
        self._held: dict[int, Held] = {}
        self._seed: int | None = None
        self._seeds = itertools.count()
        self._asking: set[asyncio.Task[None]] = set()
        self._num_unanswered = 0  # frames that were read and are not worked off
        # Each connection is a client of its own: it has its share of the budget, and its turns at the engines.
        client = f"connection {next(_numbers)}"
        self._room = Room(budget, client, lambda: bool(self._held), self._check_whether_gone)
        self._frames = Frames(reader, self._room, lambda: self.model is not None or self._num_unanswered > 0)
        self._outbox = Outbox(writer, self._room, self._forget)

    @property
    def is_stranger(self) -> bool:
        """It has not attached, and has not been sent away."""
        return self.model is None and not self._writer.transport.is_closing()

    @property
    def num_running(self) -> int:
        return len(self._held)

    def hang_up(self) -> None:
        """Ends `run` as the client's own end does."""
        self._writer.transport.abort()

    async def decline(self, sentence: str) -> None:
        """Instead of `run`."""
        await self._say_farewell(PenstockError(sentence))
        self.hang_up()

    async def run(self) -> None:
        frames: asyncio.Queue[Frame] = asyncio.Queue(1)
        tasks = [
            asyncio.create_task(self._read(frames)),
            asyncio.create_task(self._work(frames)),
            asyncio.create_task(self._outbox.run()),
        ]
        error: BaseException | None = None
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            error = next((task.exception() for task in done if not task.cancelled()), None)
        finally:
            for task in (*tasks, *self._asking):
                task.cancel()
            self._leave()
            await asyncio.gather(*tasks, *self._asking, return_exceptions=True)
            self._leave()  # what was admitted meanwhile
            if self.model is not None:
                self.model.release()
            await self._say_farewell(error)
            self._room.close()
            self.hang_up()

    async def _say_farewell(self, error: BaseException | None) -> None:
        """To who is sent away. Who has gone by itself, and who doesn't read, hears nothing."""
        if error is None or isinstance(error, (asyncio.IncompleteReadError, ConnectionError)):
            return
        if not isinstance(error, (PenstockError, msgspec.DecodeError)):
            logs.say(f"A client was sent away: {type(error).__name__}: {error}", quiet=False)
        with suppress(ConnectionError, TimeoutError):
            self._writer.write(frame(Declined(Failure.of(error), False)))
            self._writer.close()
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()

    def _leave(self) -> None:
        """Nobody waits for its answers any more."""
        self._drop(list(self._held))

    def _check_whether_gone(self) -> None:
        """While nothing is read its end is not heard of."""
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket"), select.POLLRDHUP)
        if poll.poll(0):
            raise ConnectionResetError

    # --- frames ------------------------------------------------------------------------------------------------------

    async def _read(self, frames: "asyncio.Queue[Frame]") -> None:
        """Until the client's stream ends, which raises."""
        while True:
            found = await self._frames.next()
            self._num_unanswered += 1
            await frames.put(found)

    async def _work(self, frames: "asyncio.Queue[Frame]") -> None:
        while True:
            found = await frames.get()
            await self._worked_off(found.message)
            self._num_unanswered -= 1
            self._room.give(found.num_bytes)

    async def _worked_off(self, message: Any) -> None:
        if isinstance(message, Attach):
            await self._attach(message)
        elif isinstance(message, PackedAsk):
            await self._ask(Ask(message))
        elif isinstance(message, Drop):
            self._drop(message.numbers)
        elif isinstance(message, Cancel):
            self._cancel(message.numbers)
        else:
            await self._answer(message)

    async def _answer(self, question: Any) -> None:
        """Beside the requests: an adapter takes its time. Who asks and does not read comes to wait."""
        if len(self._asking) >= _QUESTIONS:
            await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._answered(question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answered(self, question: Any) -> None:
        self._num_unanswered += 1
        try:
            await self._answers.answer(question, self.model, self._outbox.say, client=self)
            await self._outbox.told()
        except BudgetError:  # it doesn't read what it was told before
            self.hang_up()
        finally:
            self._num_unanswered -= 1

    # --- attaching ---------------------------------------------------------------------------------------------------

    async def _attach(self, message: Attach) -> None:
        try:
            session, model = await self._found(message)
        except (_Disagreement, UnknownModelError, ClosedError) as error:
            self._outbox.say(Declined(Failure.of(ConfigError(str(error))), True))
            return
        except PenstockError as error:
            self._outbox.say(Declined(Failure.of(error), False))
            return
        self._seed = message.seed
        files = session.files
        self._outbox.say(
            Attached(
                model.name,
                session.plan,
                session.door.defaults,
                str(files.folder),
                str(files.tokenizer_folder),
                session.config.enable_lora,
            )
        )

    async def _found(self, message: Attach) -> tuple[Session, Model]:
        """The model with a lease on it, loaded, and as the client wants it."""
        if message.protocol != ATTACH_PROTOCOL:
            raise _Disagreement("The daemon runs another version of Penstock; restart it with this one.")
        if self.model is not None:
            raise _Disagreement("This connection has a model already.")
        try:
            model = self.models.find(message.model, message.path)
        except UnknownModelError:
            if not message.may_add:
                raise
            model = self.models.add(message.path, message.options)
        model.lease()
        self.model = model
        session = await model.ready()
        if words := disagreement(session.config, session.plan, message.options):
            self.model = None
            model.release()
            raise _Disagreement(words)
        return session, model

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> None:
        """A group at a time: what others ask for comes in between, and what there is no room for waits."""
        await asyncio.to_thread(ask.measure)
        for group in ask.groups():
            numbers = self._own_numbers(group)
            try:
                if self.models.is_draining:
                    raise ClosedError("The daemon is shutting down and takes no new requests.")
                session = await self._leased().ready()
                await self._admit(ask, group, session)
            except PenstockError as error:
                self._outbox.say(Failed(numbers, Failure.of(error)))
                self._drop(numbers)

    def _own_numbers(self, group: list[Arrived]) -> list[int]:
        """Those that no other request has. One that has another's is refused: what is said could be of either."""
        numbers: dict[int, None] = {}
        for one in group:
            if one.number in self._held or one.number in numbers:
                one.refusal = f"Another request of this connection has the number {one.number}, and it runs."
            else:
                numbers[one.number] = None
        return list(numbers)

    def _leased(self) -> Model:
        if self.model is None:
            raise PenstockError("Attach to a model first.")
        return self.model

    async def _admit(self, ask: Ask, group: list[Arrived], session: Session) -> None:
        num_bytes = sum(one.num_bytes for one in group)
        try:
            await self._room.take_when_free(num_bytes)
        except BudgetError as error:
            self._outbox.say(Pieces([refused(one.number, 1, 429, str(error)) for one in group]))
            return
        try:
            wanted = await ask.wanted(group, session, client=self)
            admitted = await session.threads.texts.run(self._admitted, wanted, session, client=self)
            await self._submit(admitted, session)
        finally:
            self._room.give(num_bytes)

    async def _submit(self, admitted: list[Held], session: Session) -> None:
        """Those for which there is room; before one waits for it, those before it are on their way."""
        ready: list[Held] = []
        for held in admitted:
            try:
                held.keep(self._room)
            except BudgetError:
                session.client.submit([each.pending for each in ready])
                ready = []
                await self._kept(held)
            if held.refusal is not None or held.pending.is_finished:
                self._outbox.note(held)
            else:
                self._held[held.number] = held
                ready.append(held)
        session.client.submit([each.pending for each in ready])

    async def _kept(self, held: Held) -> None:
        try:
            await held.keep_when_free(self._room)
        except BudgetError as error:
            held.refuse(error)

    def _admitted(self, wanted: list[Wanted], session: Session) -> list[Held]:
        """Tokenized and checked; in a thread."""
        # Seeds are counted for each client, across restarts of the tree.
        door = session.door.counting_for(self._seed, self._seeds).of(self._room.client)
        by_pending: dict[int, Held] = {}

        def notify(pending: Pending) -> None:
            self._outbox.note(by_pending[pending.request_id])

        for is_streamed in (False, True):
            some = [one for one in wanted if one.is_streamed is is_streamed]
            for one, pending in zip(some, door.admit([one.asked for one in some], notify, is_streamed=is_streamed)):
                num_bytes = bytes_of(pending) + one.num_bytes
                held = Held(one.number, pending, session, is_streamed, one.asked.is_chat, num_bytes)
                by_pending[pending.request_id] = held
        return list(by_pending.values())

    def _forget(self, held: Held) -> None:
        if self._held.get(held.number) is held:
            del self._held[held.number]

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            if (held := self._held.pop(number, None)) is not None:
                held.end()
                held.session.client.abort([held.pending])
                self._room.give(held.hand_over())

    def _cancel(self, numbers: list[int]) -> None:
        for number in numbers:
            if (held := self._held.get(number)) is not None:
                with suppress(PenstockError):
                    held.session.client.cancel([held.pending])


class _Disagreement(Exception):
    """This daemon's model is not what the client asked for; a tree of its own would be."""
