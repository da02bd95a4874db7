"""Answers clients' questions other than prompts: statistics, rendered text, adapters, and the daemon's own state.

Two tables map each type of question to the function that answers it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ....protocol.attach import (
    Answer,
    AskAdapters,
    AskLoad,
    AskReload,
    AskStats,
    AskStatus,
    AskStop,
    AskUnload,
    AskUnloadModel,
    DaemonStatus,
    PackedRender,
)
from ....protocol.errors import Failure, PenstockError
from ....protocol.packed import unpacked_bytes
from ....protocol.wire import Message
from ...requests.prompts import RenderedPrompt
from ..model import DaemonModel
from .client_budget import ClientBudget
from .rendering import rendered
from .request_batch import conversation_of


class Owner(Protocol):
    """The part of the daemon that questions need."""

    async def status(self) -> DaemonStatus: ...
    def own_status(self) -> DaemonStatus: ...
    async def reload(self) -> str: ...
    def unload(self, name: str) -> str: ...
    def stop(self, seconds: float | None) -> None: ...


class QuestionHandler:
    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._of_the_daemon: dict[type, Callable[[Any], Awaitable[Answer]]] = {
            AskStatus: self._status,
            AskReload: self._reload,
            AskUnloadModel: self._unload_model,
            AskStop: self._stop,
        }
        self._of_a_model: dict[type, Callable[[Any, DaemonModel, ClientBudget], Awaitable[Answer]]] = {
            AskStats: _stats,
            PackedRender: _render,
            AskLoad: _load,
            AskUnload: _unload,
            AskAdapters: _adapters,
        }

    async def answer(
        self, question: Any, model: DaemonModel | None, say: Callable[[Message], None], budget: ClientBudget
    ) -> None:
        try:
            if (handler := self._of_the_daemon.get(type(question))) is not None:
                say(await handler(question))
            elif model is None:
                raise PenstockError("Attach to a model first.")
            else:
                say(await self._of_a_model[type(question)](question, model, budget))
        except PenstockError as error:
            say(Answer(question.query, Failure.of(error)))
        except (OSError, ValueError, LookupError, TypeError) as error:  # as for a path or a name that is not valid
            say(Answer(question.query, Failure.of(PenstockError(f"{type(error).__name__}: {error}"))))

    async def _status(self, question: AskStatus) -> Answer:
        return Answer(question.query, status=await self.owner.status())

    async def _reload(self, question: AskReload) -> Answer:
        return Answer(question.query, text=await self.owner.reload())

    async def _unload_model(self, question: AskUnloadModel) -> Answer:
        return Answer(question.query, text=self.owner.unload(question.name))

    async def _stop(self, question: AskStop) -> Answer:
        """Answered without a wait: the daemon may end as soon as nothing runs."""
        self.owner.stop(question.seconds)
        return Answer(question.query, status=self.owner.own_status())


async def _stats(question: AskStats, model: DaemonModel, budget: ClientBudget) -> Answer:
    session = await model.ready()
    stats = await asyncio.wrap_future(session.transport.ask_stats())
    return Answer(question.query, stats=stats)


async def _render(question: PackedRender, model: DaemonModel, budget: ClientBudget) -> Answer:
    """The unpacked conversation is charged besides the question; the text is charged with the answer."""
    session, packed = await model.ready(), question.conversation
    texts, client = session.threads.texts, budget.client
    async with budget.taken(await texts.run(unpacked_bytes, memoryview(packed), client=client)):
        conversation = await texts.run(conversation_of, packed, client=client)
        adds = question.add_generation_prompt
        [prompt] = await rendered(session, [conversation], client, add_generation_prompt=adds)
    if not isinstance(prompt, RenderedPrompt):
        raise prompt
    text = prompt.text if session.sight is None else session.sight.without_cuts(prompt.text)
    return Answer(question.query, text=text)


async def _load(question: AskLoad, model: DaemonModel, budget: ClientBudget) -> Answer:
    session = await model.ready()
    await session.threads.adapters.run(session.adapters.load, question.name, question.path, client=budget.client)
    return Answer(question.query)


async def _unload(question: AskUnload, model: DaemonModel, budget: ClientBudget) -> Answer:
    session = await model.ready()
    await session.threads.adapters.run(session.adapters.unload, question.name, client=budget.client)
    return Answer(question.query)


async def _adapters(question: AskAdapters, model: DaemonModel, budget: ClientBudget) -> Answer:
    session = await model.ready()
    names = await session.threads.adapters.run(session.adapters.names, client=budget.client)
    return Answer(question.query, names=names, folders=session.adapters.folders())
