"""One client of the daemon, from its first frame to the end of its stream.

Four tasks: one reads frames, one works them off in their order, one writes, one says that we are still at it. When any
of them ends, which the end of the client's stream makes happen however it came, all requests of the client are aborted
and its lease is given back.
Knows nothing of models beyond a lease on one.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from ...protocol.attach import (
    ATTACH_PROTOCOL,
    HEADER_BYTES,
    WORD_SECONDS,
    Ask,
    AskedRequest,
    Attach,
    Attached,
    Cancel,
    Declined,
    Drop,
    Failed,
    Failure,
    StillWorking,
    ToDaemon,
    frame_length,
)
from ...protocol.errors import ClosedError, ConfigError, PenstockError, RequestError
from ...protocol.messages import values
from .. import logs
from ..asked import Asked, Rendered, as_asked
from ..session import Session
from .agreement import disagreement
from .held import Held
from .model import Model
from .models import Models, UnknownModelError
from .outbox import Outbox
from .questions import Answers
from .rendering import rendered

# Frames that were read and not worked off yet; then the client waits.
_FRAMES = 4
# Questions of a client whose answers it has not taken yet; likewise.
_QUESTIONS = 16
_decoder = msgspec.msgpack.Decoder(ToDaemon)


class Served:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, models: Models, answers: Answers
    ) -> None:
        self.models = models
        self.model: Model | None = None
        self._answers = answers
        self._reader, self._writer = reader, writer
        self._held: dict[int, Held] = {}
        self._outbox = Outbox(writer, lambda number: self._held.pop(number, None))
        self._seed: int | None = None
        self._seeds = itertools.count()
        self._asking: set[asyncio.Task[None]] = set()
        self._num_frames = 0  # that have begun to come and are not worked off
        self._heard = asyncio.Event()  # something came, and may take its time

    @property
    def num_running(self) -> int:
        return len(self._held)

    def hang_up(self) -> None:
        """Ends `run` as the client's own end does."""
        self._writer.transport.abort()

    async def run(self) -> None:
        frames: asyncio.Queue[bytes] = asyncio.Queue(_FRAMES)
        tasks = [
            asyncio.create_task(self._read(frames)),
            asyncio.create_task(self._work(frames)),
            asyncio.create_task(self._outbox.run()),
            asyncio.create_task(self._say_that_we_work()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._explain(None if task.cancelled() else task.exception())
        finally:
            for task in (*tasks, *self._asking):
                task.cancel()
            self._leave()
            await asyncio.gather(*tasks, *self._asking, return_exceptions=True)
            self._leave()  # what was admitted meanwhile
            if self.model is not None:
                self.model.release()
            self._writer.transport.abort()

    def _explain(self, error: BaseException | None) -> None:
        expected = (asyncio.IncompleteReadError, ConnectionError, PenstockError, msgspec.DecodeError)
        if error is not None and not isinstance(error, expected):
            logs.say(f"A client was sent away: {type(error).__name__}: {error}", quiet=False)

    def _leave(self) -> None:
        """Nobody waits for its answers any more."""
        self._drop(list(self._held))

    # --- frames ------------------------------------------------------------------------------------------------------

    async def _read(self, frames: "asyncio.Queue[bytes]") -> None:
        """Until the client's stream ends, which raises."""
        while True:
            length = frame_length(await self._reader.readexactly(HEADER_BYTES))
            self._num_frames += 1
            self._heard.set()
            await frames.put(await self._reader.readexactly(length))

    async def _work(self, frames: "asyncio.Queue[bytes]") -> None:
        while True:
            message = _decoder.decode(await frames.get())
            if isinstance(message, Attach):
                await self._attach(message)
            elif isinstance(message, Ask):
                await self._ask(message)
            elif isinstance(message, Drop):
                self._drop(message.numbers)
            elif isinstance(message, Cancel):
                self._cancel(message.numbers)
            else:
                await self._answer(message)
            self._num_frames -= 1

    async def _say_that_we_work(self) -> None:
        """As long as the client waits for anything."""
        while True:
            await self._heard.wait()
            await asyncio.sleep(WORD_SECONDS)
            if self._num_frames or self._held or self._asking:
                self._outbox.say_anything(StillWorking())
            else:
                self._heard.clear()

    async def _answer(self, question: Any) -> None:
        """Beside the requests: an adapter takes its time. Who asks and does not read comes to wait."""
        if len(self._asking) >= _QUESTIONS:
            await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._answered(question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answered(self, question: Any) -> None:
        await self._answers.answer(question, self.model, self._outbox.say)
        await self._outbox.told()

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
        self._outbox.say(StillWorking())  # at once: who doesn't hear it looks for another model
        try:
            model = self.models.find(message.model, message.path)
        except UnknownModelError:
            if not message.may_add:
                raise
            model = self.models.add(message.model, message.path, message.options)
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
        try:
            if self.models.is_draining:
                raise ClosedError("The daemon is shutting down and takes no new requests.")
            session = await self._leased().ready()
            admitted = await asyncio.to_thread(self._admitted, ask, session)
            self._held.update((held.number, held) for held in admitted)
            session.client.submit([held.pending for held in admitted if not held.pending.is_finished])
        except PenstockError as error:
            self._outbox.say(Failed([request.number for request in ask.requests], Failure.of(error)))
            self._drop([request.number for request in ask.requests])
            return
        for held in admitted:
            if held.pending.is_finished:  # refused at the door
                self._outbox.note(held)

    def _leased(self) -> Model:
        if self.model is None:
            raise PenstockError("Attach to a model first.")
        return self.model

    def _admitted(self, ask: Ask, session: Session) -> list[Held]:
        """Rendered, tokenized and checked; in a thread."""
        conversations = iter(rendered(session, [each for one in ask.requests if (each := one.conversation)]))
        asked = [self._as_asked(request, ask, conversations) for request in ask.requests]
        # Seeds are counted for each client, across restarts of the tree.
        door = session.door.counting_for(self._seed, self._seeds)
        by_pending: dict[int, Held] = {}

        def notify(pending: Any) -> None:
            if (held := by_pending.get(pending.request_id)) is not None and held.has_news:
                self._outbox.note(held)

        for is_streamed in (False, True):
            places = [place for place, request in enumerate(ask.requests) if request.is_streamed is is_streamed]
            group = door.admit([asked[place] for place in places], notify, is_streamed=is_streamed)
            for place, pending in zip(places, group, strict=True):
                number, is_chat = ask.requests[place].number, asked[place].is_chat
                by_pending[pending.request_id] = Held(number, pending, session, is_streamed, is_chat)
        return list(by_pending.values())

    def _as_asked(self, request: AskedRequest, ask: Ask, conversations: Iterator[Rendered | RequestError]) -> Asked:
        params = ask.params[request.params]
        if request.conversation is not None:
            return replace(as_asked(next(conversations), params), beams=ask.beams)
        token_ids = None if request.token_ids is None else values(request.token_ids)
        return Asked(request.text, token_ids, params, beams=ask.beams)

    def _drop(self, numbers: list[int]) -> None:
        for held in self._taken(numbers):
            held.end()
            held.session.client.abort([held.pending])

    def _taken(self, numbers: list[int]) -> list[Held]:
        return [held for number in numbers if (held := self._held.pop(number, None)) is not None]

    def _cancel(self, numbers: list[int]) -> None:
        for number in numbers:
            if (held := self._held.get(number)) is not None:
                with suppress(PenstockError):
                    held.session.client.cancel([held.pending])


class _Disagreement(Exception):
    """This daemon's model is not what the client asked for; a tree of its own would be."""
