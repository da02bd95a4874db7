"""The skeleton of the endpoints that generate: lease a model, prepare the request, answer it whole or as events.

An endpoint brings an `Answering`, made of its request in one of the model's threads; what it tells, and in which form,
is its own.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..session.model_threads import ModelThreads
from ..session.threads import Threads
from .endpoint import AnyReply, Call
from .errors import ApiError
from .generation import Generation
from .models import Model
from .reply import Events, error_event


class GeneratingRequest(Protocol):
    model: str | None
    stream: bool | None


RequestT = TypeVar("RequestT", bound=GeneratingRequest)


@dataclass(slots=True)
class Answering(ABC, Generic[RequestT]):
    """One request, ready to be answered."""

    asked: Generation
    request: RequestT
    created: int = field(default_factory=lambda: int(time.time()), kw_only=True)

    @property
    def id(self) -> str:
        return self.asked.call.running.id

    @property
    def name(self) -> str:
        """Of the model, as it was asked for."""
        return self.request.model or self.asked.model.name

    @abstractmethod
    async def whole(self) -> AnyReply: ...

    @abstractmethod
    def events(self) -> AsyncIterator[bytes]:
        """Pieces of a stream as they come; closing it aborts the request."""

    def failed(self, error: ApiError) -> bytes:
        """How a stream that has begun tells an error."""
        return error_event(error)

    @property
    def ending(self) -> bytes:
        return b"data: [DONE]\n\n"


Prepare = Callable[[Call, RequestT, Model], Answering[RequestT]]


async def answered(
    call: Call,
    request: RequestT,
    prepare: Prepare[RequestT],
    threads: Callable[[ModelThreads], Threads],
    *,
    takes_long: bool,
) -> AnyReply:
    """`threads` names those that the request is prepared in, if that takes long."""
    lease = AsyncExitStack()
    try:
        model = await lease.enter_async_context(call.model(request.model))
        answering = await call.done(threads(model.threads), prepare, call, request, model, takes_long=takes_long)
        if not request.stream:
            return await answering.whole()
        return Events(_leased(answering.events(), lease.pop_all()), answering.failed, answering.ending)
    finally:
        await lease.aclose()


async def _leased(events: AsyncIterator[bytes], lease: AsyncExitStack) -> AsyncIterator[bytes]:
    """The lease ends with the stream."""
    async with lease, aclosing(events) as pieces:  # type: ignore[type-var]  # an async generator
        async for piece in pieces:
            yield piece
