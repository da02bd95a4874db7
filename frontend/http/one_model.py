"""The one model of a server in a user's own program: an `AsyncLLM` under one or more names."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from ...protocol.errors import ConfigError, PenstockError, RequestError
from ...protocol.stats import Stats
from ..async_llm import AsyncLLM
from ..session.private import PrivateSession
from ..session.session import Session
from .loaded_model import LoadedModel
from .models import ModelNotServedError, ModelState, ServedName, unknown_model


class OneModel:
    """`Models` made of one `AsyncLLM`; its adapters are models, too."""

    def __init__(self, llm: AsyncLLM, *names: str) -> None:
        self._llm = llm
        self._names = names
        self._created = int(time.time())

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[LoadedModel]:
        session = await self._ready_session()
        if name is None or name in self._names:
            yield LoadedModel(session, self._names[0])
        elif name in await self._adapters():
            yield LoadedModel(session, self._names[0], lora_name=name)
        else:
            raise ModelNotServedError(unknown_model(name, self._names))

    @property
    def is_short_of_memory(self) -> bool:
        return False

    async def listing(self) -> list[ServedName]:
        session = await self._ready_session()
        card = ServedName(self._names[0], self._created, session.door.plan.max_model_len, session=session)
        cards = [replace(card, name=name) for name in self._names]
        return cards + [replace(card, name=name, parent=card.name) for name in await self._adapters()]

    def unload(self, name: str) -> None:
        raise RequestError("This server has one model, which ends with it: stop the program that serves it.")

    async def stats(self) -> dict[str, Stats]:
        asked = asyncio.wrap_future((await self._ready_session()).transport.ask_stats())
        return {self._names[0]: await asked}

    def states(self) -> dict[str, ModelState]:
        try:
            if (loaded := self._llm.loaded_session()) is None:
                return {self._names[0]: ModelState("loading")}
            error: BaseException | None = _private(loaded).transport.error
        except PenstockError as failure:  # of its start
            error = failure
        why = str(error) if error is not None else ""
        return {self._names[0]: ModelState("ready" if error is None else "failed", why, why)}

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        with suppress(PenstockError):
            return {self._names[0]: await (await self._ready_session()).transport.silent(seconds)}
        return {}

    async def _ready_session(self) -> PrivateSession:
        return _private(await self._llm.ready_session())

    async def _adapters(self) -> list[str]:
        return await self._llm.list_loras() if (await self._ready_session()).config.enable_lora else []


def _private(session: Session[Any]) -> PrivateSession:
    if not isinstance(session, PrivateSession):
        raise ConfigError("The model of a server has a process tree of its own: use connect='never'.")
    return session
