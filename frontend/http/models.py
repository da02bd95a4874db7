"""What the server needs of the models behind it, and the smallest thing that has it: one `AsyncLLM`.

The daemon brings another one, with several models that come and go. Knows nothing of HTTP.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...protocol.errors import ModelNotFoundError, PenstockError, RequestError
from ...protocol.sampling import SamplingParams
from ...protocol.stats import Stats
from ...protocol.suggestion import suggestion
from ..async_llm import AsyncLLM
from ..requests.budget import Charge
from ..requests.pending import News, Pending
from ..requests.prompts import Rendered
from ..session.model_threads import ModelThreads
from ..session.tree.transport import TreeTransport
from ..text.tokenizer import Tokenizer
from ..text.turn import Turn
from .arrivals import Arrival


class UnknownModel(ModelNotFoundError):
    """No model of that name is served; its words hold no path."""


def unknown_model(name: str, names: Sequence[str]) -> str:
    return f"There is no model {name!r} here; there is {', '.join(names) or 'none'}.{suggestion(name, names)}"


@dataclass(frozen=True, slots=True)
class Card:
    """One name that a request may give as its model."""

    name: str
    created: int  # Unix seconds
    max_model_len: int | None = None  # None: not loaded, so nobody knows yet
    parent: str | None = None  # of an adapter: the model that it belongs to
    is_loaded: bool = True


class ModelState(NamedTuple):
    state: str  # ready, loading, restarting, failed, unloading, or unloaded: loaded when it is asked
    reason: str = ""  # why it has failed, or is started again
    last_error: str = ""  # the same, also after it has come back
    last_error_time: float = 0.0  # Unix seconds


@dataclass(slots=True, eq=False)
class Submitted:
    """A prompt that has gone to an engine, and the way to that."""

    request: Pending
    client: TreeTransport
    # Of one that was left before its end: the engine's answer how many tokens each of its samples had by then. Those
    # of a whole answer come to this process at its end alone.
    last_stats: "Future[Stats] | None" = None

    def leave(self) -> None:
        """Nobody waits for it any more: it is ended, if it still runs."""
        if not (self.request.is_finished or self.request.prompt.is_streamed):
            with suppress(PenstockError):  # the engine has died, or is closed
                self.last_stats = self.client.ask_stats(self.request.sequence_ids)
        self.client.abort([self.request])


class Model(Protocol):
    """A loaded model, as long as it is leased."""

    name: str

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def defaults(self) -> SamplingParams:
        """What the model's own files ask for."""

    @property
    def threads(self) -> ModelThreads: ...

    def adapter(self, asked: str | None) -> str | None:
        """The one that a request uses: the one it asks for, else the one whose name it gave as the model's."""

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        """In one of the threads for templates: it may take as long as a process apart may."""

    def stream(
        self,
        prompt: Rendered | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[Submitted], None],
    ) -> AsyncGenerator[News]:
        """What is new, as it comes; only the whole, at the end, unless `is_streamed`. Closing it aborts the request.

        `on_submit` is told when the engine gets it. All that is held for it is charged, and given back by whoever takes
        it. The clients that are charged take turns at the engine.
        """


class Models(Protocol):
    def lease(self, name: str | None) -> AbstractAsyncContextManager[Model]:
        """The model of that name (None: the only or first one), loaded if need be; it stays while the context is open.

        Raises `UnknownModel` for an unknown name and another `PenstockError` where it can't be loaded.
        """

    async def listing(self) -> list[Card]: ...

    async def stats(self) -> dict[str, Stats]:
        """Of each loaded model whose engine answers; raises what has ended one."""

    def states(self) -> dict[str, ModelState]: ...

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        """Of each loaded model the processes that don't answer now, each asked itself; none of those that have ended,
        which `states` says by then."""


@dataclass(slots=True)
class LoadedModel:
    """A `Model` over an `AsyncLLM` that is ready."""

    llm: AsyncLLM
    name: str
    lora_name: str | None = None  # set where the name asked for is an adapter's
    serves_adapters: bool = True

    @property
    def threads(self) -> ModelThreads:
        return self.llm._session.threads

    def adapter(self, asked: str | None) -> str | None:
        if asked and not self.serves_adapters:
            raise RequestError(f"There is no adapter {asked!r} here.")
        return asked or self.lora_name

    @property
    def max_model_len(self) -> int:
        return self.llm._session.door.plan.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        return self.llm.get_tokenizer()

    @property
    def defaults(self) -> SamplingParams:
        return self.llm._session.door.defaults

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        session = self.llm._session
        given = None if tools is None else list(tools)
        turn = Turn(list(conversation), given, dict(template_options or {}), add_generation_prompt)
        if chat_template is None:
            [text] = session.render_apart([turn])
        else:
            [text] = session.render_brought(chat_template, [turn])
        if isinstance(text, RequestError):
            raise text
        return text

    async def stream(
        self,
        prompt: Rendered | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[Submitted], None],
    ) -> AsyncGenerator[News]:
        """A prompt is cut into tokens in a thread: a tokenizer comes from a stranger, and other streams go on."""
        session, arrival = self.llm._session, Arrival()

        def admit() -> Any:
            asked = list(session.door.asked([prompt], params))
            return session.door.of(charge.client).admit(asked, arrival.notify, is_streamed=is_streamed)[0]

        request = await self.threads.texts.run(admit, client=charge.client)
        if request.is_finished:  # refused at the door
            yield request.take_packed()
            return
        charge.grow(request.own_bytes)
        request.charge = charge
        submitted = Submitted(request, session.client)
        try:
            session.client.submit([request])
            on_submit(submitted)
            is_finished = False
            while not is_finished:
                await arrival.wait()
                if not is_streamed and not request.is_finished and request.error is None:
                    continue
                # Until there is no more: an error behind the last words is told no second time.
                while not is_finished and (news := session.news(request, Pending.take_packed)) is not None:
                    is_finished = news.output.finished
                    yield news
        finally:
            submitted.leave()


class OneModel:
    """`Models` made of one `AsyncLLM` under one or more names; its adapters are models, too."""

    def __init__(self, llm: AsyncLLM, *names: str) -> None:
        self._llm = llm
        self._names = names
        self._created = int(time.time())

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[Model]:
        await self._llm.ready()
        if name is None or name in self._names:
            yield LoadedModel(self._llm, self._names[0])
        elif name in await self._adapters():
            yield LoadedModel(self._llm, self._names[0], lora_name=name)
        else:
            raise UnknownModel(unknown_model(name, self._names))

    async def listing(self) -> list[Card]:
        await self._llm.ready()
        length = self._llm._session.door.plan.max_model_len
        cards = [Card(name, self._created, length) for name in self._names]
        return cards + [Card(name, self._created, length, self._names[0]) for name in await self._adapters()]

    async def stats(self) -> dict[str, Stats]:
        await self._llm.ready()
        asked = asyncio.wrap_future(self._llm._session.client.ask_stats())
        return {self._names[0]: await asked}

    def states(self) -> dict[str, ModelState]:
        error = self._llm._session.client.error
        why = str(error) if error is not None else ""
        return {self._names[0]: ModelState("ready" if error is None else "failed", why, why)}

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        with suppress(PenstockError):
            await self._llm.ready()
            return {self._names[0]: await self._llm._session.client.silent(seconds)}
        return {}

    async def _adapters(self) -> list[str]:
        return await self._llm.list_loras() if self._llm._session.config.enable_lora else []
