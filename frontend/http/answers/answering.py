"""The steps that all generating endpoints share: lease a model, prepare the request, answer it whole or as events.

Each endpoint has its own `PreparedRequest`, made in one of the model's threads, which formats the answer.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ....protocol.messages import Logprobs
from ...requests.prompts import NO_TEXT, RenderedPrompt
from ...requests.request import guarded
from ...session.threads import ModelThreads, Threads
from ..endpoint import AnyReply, Call
from ..loaded_model import LoadedModel
from ..requests.conversation import as_messages, rendered
from ..requests.request_parts import RequestParts
from .errors import ApiError
from .generation import Generation, check_asked
from .logprobs import PackedPositions
from .reply import EVENT_STREAM, Events, error_event


class GeneratingRequest(Protocol):
    model: str | None
    stream: bool | None


Item = TypeVar("Item")


class TemplatedRequest(Protocol):
    chat_template_kwargs: dict[str, Any] | None


RequestT = TypeVar("RequestT", bound=GeneratingRequest)


@dataclass(slots=True)
class PreparedRequest(ABC, Generic[RequestT]):
    """One request, ready to be answered."""

    generation: Generation
    request: RequestT
    created: int = field(default_factory=lambda: int(time.time()), kw_only=True)

    @property
    def id(self) -> str:
        return self.generation.call.active_request.id

    @property
    def name(self) -> str:
        """The model's name, as the client gave it."""
        return self.request.model or self.generation.model.name

    def packed(self, parts: list[Logprobs]) -> PackedPositions:
        return PackedPositions(parts, self.generation.model.tokenizer.decode_token)

    @abstractmethod
    async def whole(self) -> AnyReply: ...

    @abstractmethod
    def events(self) -> AsyncIterator[bytes]:
        """Pieces of a streamed answer; closing it aborts the request."""

    def failed(self, error: ApiError) -> bytes:
        """The event with which a stream that has begun reports an error."""
        return error_event(error)

    @property
    def ending(self) -> bytes:
        return b"data: [DONE]\n\n"

    @property
    def media_type(self) -> bytes:
        return EVENT_STREAM


Prepare = Callable[[Call, RequestT, LoadedModel], PreparedRequest[RequestT]]


async def answered(
    call: Call,
    request: RequestT,
    prepare: Prepare[RequestT],
    threads: Callable[[ModelThreads], Threads],
    *,
    takes_long: bool,
) -> AnyReply:
    """Answer a request. `threads` chooses the threads that prepare it, if that takes long."""
    lease = AsyncExitStack()
    try:
        model = await lease.enter_async_context(call.model(request.model))
        if model.session.pooled is not None:
            raise ApiError(400, NO_TEXT, param="model")
        prepared = await call.done(threads(model.threads), prepare, call, request, model, takes_long=takes_long)
        if not request.stream:
            return await prepared.whole()
        events = _leased(prepared.events(), lease.pop_all())
        return Events(events, prepared.failed, prepared.ending, prepared.media_type)
    finally:
        await lease.aclose()


async def _leased(events: AsyncIterator[bytes], lease: AsyncExitStack) -> AsyncIterator[bytes]:
    """The events; the lease is released when the stream ends."""
    async with lease, aclosing(events) as pieces:  # type: ignore[type-var]  # an async generator
        async for piece in pieces:
            yield piece


async def or_silence(items: AsyncGenerator[Item], seconds: float) -> AsyncGenerator[Item | None]:
    """The items; before the first one None each time that it hasn't come for so long."""
    async with aclosing(items):
        first = asyncio.ensure_future(anext(items))
        try:
            while not (await asyncio.wait((first,), timeout=seconds))[0]:
                yield None
        finally:
            if not first.done():
                first.cancel()
                await asyncio.wait((first,))
        with suppress(StopAsyncIteration):
            yield first.result()
        async for item in items:
            yield item


def generation_of(
    call: Call, model: LoadedModel, request: TemplatedRequest, parts: RequestParts, *, continues: bool = False
) -> Generation:
    """Check a conversation's parameters and render it. `continues`: its last message is the beginning of the answer."""
    params = guarded(parts.params)
    check_asked(1, params, call.server.options)
    return Generation(call, model, [prompt_of(model, request, parts, continues=continues)], params)


def prompt_of(model: LoadedModel, request: TemplatedRequest, parts: RequestParts, *, continues: bool) -> RenderedPrompt:
    """Render a conversation with the model's own template."""
    model.check_template_options(request.chat_template_kwargs, parts.choice.tools)
    options = {**parts.template_options, "continue_final_message": True} if continues else parts.template_options
    messages = as_messages(parts.messages)
    return rendered(model, messages, parts.choice.tools, options, adds_generation_prompt=not continues)
