"""Serves one client of the daemon, from its first frame to the end of its stream.

Four tasks run for it: one reads frames, one handles them in order, one writes, and one tells the client that we are
still working. When any of them ends, as they all do when the stream ends, all requests of the client are aborted, its
lease is released, and so is its budget.
"""

import asyncio
import itertools
import math
import select
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from ....protocol.attach import (
    ATTACH_PROTOCOL,
    WORD_SECONDS,
    Attach,
    Attached,
    Cancel,
    Declined,
    Drop,
    PackedAsk,
    PackedQuestion,
    StillWorking,
    frame,
)
from ....protocol.errors import ClosedError, ConfigError, Failure, PenstockError
from ...console import logs
from ...requests.budget import Budget, BudgetError
from ...session.private import PrivateSession
from ...session.threads import Threads
from ..model import DaemonModel
from ..models import DaemonModels, UnknownModelError
from ..settings import disagreement
from .client_budget import ClientBudget
from .frames import Frame, Frames
from .outbox import ClientOutbox
from .questions import QuestionHandler
from .request_batch import RequestBatch
from .requests import Requests

# The most questions with unread answers; beyond that, the client waits.
_QUESTIONS = 16
# How long a client that is disconnected has to read why.
_FAREWELL_SECONDS = 1.0
# Connections not attached to a model yet. A client attaches at once, so few are waiting at any moment.
_MOST_STRANGERS = 64
# Each connection has descriptors, buffers and tasks; the memory that it makes the daemon hold is charged in addition.
_MOST_CONNECTIONS = 512
_numbers = itertools.count()


@dataclass(slots=True)
class MessageThreads:
    """Threads shared by all connections, which take turns: some measure incoming requests, others pack answers.

    There is no timeout: the requests were sent already, and the answers computed.
    """

    measuring: Threads = field(default_factory=lambda: Threads("Messages", 2, patience=math.inf))
    packing: Threads = field(default_factory=lambda: Threads("Answers", 2, patience=math.inf))


class ClientConnection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        models: DaemonModels,
        questions: QuestionHandler,
        budget: Budget,
        threads: MessageThreads,
    ) -> None:
        self.models = models
        self.model: DaemonModel | None = None
        self._questions = questions
        self._writer = writer
        self._asking: set[asyncio.Task[None]] = set()
        self._num_unanswered = 0  # frames read but not handled yet
        self._heard = asyncio.Event()  # set when a frame has arrived, which may take long to handle
        # Each connection counts as a client: it has its own share of the budget, and its own turns at the engines.
        client = f"connection {next(_numbers)}"
        self._budget = ClientBudget(budget, client, lambda: self.num_running > 0, self._check_whether_gone)
        self._frames = Frames(reader, self._budget, lambda: self.model is not None or self._num_unanswered > 0)
        self._outbox = ClientOutbox(
            writer, self._budget, threads.packing, lambda request: self._requests.forget(request)
        )
        self._requests = Requests(models, self._budget, self._outbox, threads.measuring)

    @property
    def is_stranger(self) -> bool:
        """Whether it has not attached to a model and is not being disconnected."""
        return self.model is None and not self._writer.transport.is_closing()

    @property
    def num_running(self) -> int:
        return len(self._requests)

    def hang_up(self) -> None:
        """Make `run` end, as if the client had disconnected."""
        self._writer.transport.abort()

    async def decline(self, sentence: str) -> None:
        """Refuse the client; called instead of `run`."""
        await self._say_farewell(PenstockError(sentence))
        self.hang_up()

    async def run(self) -> None:
        frames: asyncio.Queue[Frame] = asyncio.Queue(1)
        tasks = [
            asyncio.create_task(self._read(frames)),
            asyncio.create_task(self._work(frames)),
            asyncio.create_task(self._outbox.run()),
            asyncio.create_task(self._say_that_we_work()),
        ]
        error: BaseException | None = None
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            error = next((task.exception() for task in done if not task.cancelled()), None)
        finally:
            for task in (*tasks, *self._asking):
                task.cancel()
            self._requests.drop_all()
            await asyncio.gather(*tasks, *self._asking, return_exceptions=True)
            self._requests.drop_all()  # requests that were admitted meanwhile
            if self.model is not None:
                self.model.release()
            await self._say_farewell(error)
            self._budget.close()
            self.hang_up()

    async def _say_farewell(self, error: BaseException | None) -> None:
        """Tell a client why it is disconnected, unless it has left by itself or doesn't read."""
        if error is None or isinstance(error, (asyncio.IncompleteReadError, ConnectionError)):
            return
        if self._writer.transport.is_closing():
            return
        if not isinstance(error, (PenstockError, msgspec.DecodeError, UnicodeDecodeError)):
            logs.say(f"A client was sent away: {type(error).__name__}: {error}", quiet=False)
        with suppress(ConnectionError, TimeoutError):
            self._writer.write(frame(Declined(Failure.of(error), False)))
            self._writer.close()
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()

    def _check_whether_gone(self) -> None:
        """Raise if the client has closed its end, which goes unnoticed while we don't read."""
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket"), select.POLLRDHUP)
        if poll.poll(0):
            raise ConnectionResetError

    # --- frames ------------------------------------------------------------------------------------------------------

    async def _read(self, frames: "asyncio.Queue[Frame]") -> None:
        """Read until the client's stream ends, which raises."""
        while True:
            await self._read_one(frames)  # a call of its own, so that no local variable keeps the last frame alive

    async def _read_one(self, frames: "asyncio.Queue[Frame]") -> None:
        found = await self._frames.next()
        self._num_unanswered += 1
        self._heard.set()
        await frames.put(found)

    async def _work(self, frames: "asyncio.Queue[Frame]") -> None:
        while True:
            await self._handle(await frames.get())

    async def _handle(self, found: Frame) -> None:
        message = found.message
        if isinstance(message, PackedQuestion):
            await self._begin_answer(found)
            return
        if isinstance(message, Attach):
            await self._attach(message)
        elif isinstance(message, PackedAsk):
            await self._requests.ask(RequestBatch(message), self.model)
        elif isinstance(message, Drop):
            self._requests.drop(message.numbers)
        elif isinstance(message, Cancel):
            self._requests.cancel(message.numbers)
        self._finish(found)

    def _finish(self, found: Frame) -> None:
        """Release the charge of a handled frame."""
        self._num_unanswered -= 1
        self._budget.give(found.num_bytes)

    async def _say_that_we_work(self) -> None:
        """Send `StillWorking` regularly, as long as the client waits for anything."""
        while True:
            await self._heard.wait()
            await asyncio.sleep(WORD_SECONDS)
            if self._num_unanswered or self.num_running or self._asking:
                with suppress(BudgetError):  # the client has enough unread messages to see that
                    self._outbox.say_anything(StillWorking())
            else:
                self._heard.clear()

    async def _begin_answer(self, found: Frame) -> None:
        """Answer in a task of its own, since some answers take long. A client that doesn't read them has to wait."""
        if len(self._asking) >= _QUESTIONS:
            await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._answer(found))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer(self, found: Frame) -> None:
        try:
            await self._questions.answer(found.message, self.model, self._outbox.say, self._budget)
            await self._outbox.drained()
        except BudgetError:  # the client doesn't read earlier answers
            self.hang_up()
        finally:
            self._finish(found)

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
        self._requests.seed, self._requests.edition = message.seed, session.transport.edition
        files = session.files
        self._outbox.say(
            Attached(
                model.name,
                session.door.plan,
                session.door.defaults,
                str(files.folder),
                str(files.tokenizer_folder),
                session.config.enable_lora,
                session.config,
            )
        )

    async def _found(self, message: Attach) -> tuple[PrivateSession, DaemonModel]:
        """The model that the client wants, leased and loaded."""
        if message.protocol != ATTACH_PROTOCOL:
            raise _Disagreement("The daemon runs another version of Penstock; restart it with this one.")
        if self.model is not None:
            raise _Disagreement("This connection has a model already.")
        self._outbox.say(StillWorking())  # at once: a client that hears nothing looks for another model
        if message.may_add:
            model = self.models.find_or_add(message.model, message.path, message.options)
        else:
            model = self.models.find(message.model, message.path)
        model.lease()
        self.model = model
        try:
            session = await model.ready()
            if words := disagreement(model.settings.config, session.config, session.door.plan, message.options):
                raise _Disagreement(words)
        except BaseException:  # the client has no model again
            self.model = None
            model.release()
            raise
        return session, model


class _Disagreement(Exception):
    """The client asked for a model that this daemon doesn't have, but a tree of its own would."""


def limit_connections(connections: Iterable[ClientConnection]) -> str | None:
    """Make room for one more connection; returns the reason if there is none.

    `connections` are in order of arrival: the oldest one that has not attached is closed.
    """
    every = list(connections)
    strangers = [connection for connection in every if connection.is_stranger]
    if len(every) >= _MOST_CONNECTIONS and not strangers:
        return f"The daemon has {_MOST_CONNECTIONS} clients, which is the most. Try again when some of them have left."
    if len(strangers) >= _MOST_STRANGERS or len(every) >= _MOST_CONNECTIONS:
        strangers[0].hang_up()
    return None
