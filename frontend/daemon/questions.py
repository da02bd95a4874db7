"""Answers to what clients ask besides answers to prompts: figures, rendered text, adapters, the daemon itself.

A table: question → who answers it. Knows nothing of sockets.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from ...protocol.attach import (
    Answer,
    AskAdapters,
    AskLoad,
    AskReload,
    AskRender,
    AskStats,
    AskStatus,
    AskStop,
    AskUnload,
    DaemonStatus,
    Failure,
    Question,
)
from ...protocol.errors import PenstockError, RequestError
from ...protocol.wire import Message
from .model import Model
from .rendering import rendered


class Owner(Protocol):
    """The daemon, as those who ask see it."""

    async def status(self) -> DaemonStatus: ...
    async def reload(self) -> str: ...
    def stop(self, seconds: float) -> None: ...


class Answers:
    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._of_the_daemon: dict[type, Callable[[Any], Awaitable[Answer]]] = {
            AskStatus: self._status,
            AskReload: self._reload,
            AskStop: self._stop,
        }
        self._of_a_model: dict[type, Callable[[Any, Model], Awaitable[Answer]]] = {
            AskStats: _stats,
            AskRender: _render,
            AskLoad: _load,
            AskUnload: _unload,
            AskAdapters: _adapters,
        }

    async def answer(self, question: Question, model: Model | None, say: Callable[[Message], None]) -> None:
        try:
            if (answers := self._of_the_daemon.get(type(question))) is not None:
                say(await answers(question))
            elif model is None:
                raise PenstockError("Attach to a model first.")
            else:
                say(await self._of_a_model[type(question)](question, model))
        except PenstockError as error:
            say(Answer(question.query, Failure.of(error)))

    async def _status(self, question: AskStatus) -> Answer:
        return Answer(question.query, status=await self.owner.status())

    async def _reload(self, question: AskReload) -> Answer:
        return Answer(question.query, text=await self.owner.reload())

    async def _stop(self, question: AskStop) -> Answer:
        self.owner.stop(question.seconds)
        return Answer(question.query)


async def _stats(question: AskStats, model: Model) -> Answer:
    session = await model.ready()
    return Answer(question.query, stats=await asyncio.wrap_future(session.client.ask_stats()))


async def _render(question: AskRender, model: Model) -> Answer:
    session = await model.ready()
    render = partial(rendered, session, [question.conversation], add_generation_prompt=question.add_generation_prompt)
    [prompt] = await asyncio.to_thread(render)
    if isinstance(prompt, RequestError):
        raise prompt
    return Answer(question.query, text=prompt.text)


async def _load(question: AskLoad, model: Model) -> Answer:
    session = await model.ready()
    await asyncio.to_thread(session.adapters.load, question.name, question.path)
    return Answer(question.query)


async def _unload(question: AskUnload, model: Model) -> Answer:
    session = await model.ready()
    await asyncio.to_thread(session.adapters.unload, question.name)
    return Answer(question.query)


async def _adapters(question: AskAdapters, model: Model) -> Answer:
    session = await model.ready()
    return Answer(question.query, names=await asyncio.to_thread(session.adapters.names))
