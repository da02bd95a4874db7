"""A loaded model behind the server: submits prompts to its session's process tree and passes on the answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ...protocol.errors import PenstockError, RequestError
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.stats import Stats
from ..requests.budget import Charge
from ..requests.pending_request import PackedOutput, PendingRequest
from ..requests.prompts import ParsedPrompt, RenderedPrompt, parse_prompt
from ..session.engine_transport import EngineTransport
from ..session.private import PrivateSession
from ..session.threads import LoopQueue, ModelThreads
from ..text.tokenizer import Tokenizer

# Texts that are tokenized at once, before other clients have their turn at the threads.
_TEXTS_AT_ONCE = 64


class NewsSignal:
    """Wakes the task that waits for a request's news: `notify` from any thread, `wait` in the loop that made it.

    Signals of one event loop are queued together, so that all news of a step takes one call into the loop.
    """

    __slots__ = ("_signals", "_is_noted", "event")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if (signals := _of_loops.get(loop)) is None:
            signals = _of_loops[loop] = LoopQueue(loop, asyncio.Event.set)
        self._signals = signals
        self._is_noted = False
        self.event = asyncio.Event()

    def notify(self, request: object = None) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._signals.put(self.event)

    async def wait(self) -> None:
        await self.event.wait()
        self.event.clear()
        self._is_noted = False  # before the caller looks for news


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue[asyncio.Event]] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class SubmittedPrompt:
    """A prompt that has been submitted to an engine, and the transport to that engine."""

    request: PendingRequest
    transport: EngineTransport
    # For a prompt left before its end: the engine's count of tokens per sample. Without streaming, tokens reach this
    # process only at the end.
    last_stats: Future[Stats] | None = None

    def leave(self) -> None:
        """Stop waiting for it: abort it if it still runs."""
        if not (self.request.is_finished or self.request.prompt.is_streamed):
            with suppress(PenstockError):  # the engine has died, or is closed
                self.last_stats = self.transport.ask_stats(self.request.sequence_ids)
        self.transport.abort([self.request])


@dataclass(slots=True)
class LoadedModel:
    """A ready session, as the server uses it; valid while it is leased."""

    session: PrivateSession
    name: str
    lora_name: str | None = None  # set if the requested name is an adapter's
    serves_adapters: bool = True

    @property
    def threads(self) -> ModelThreads:
        return self.session.threads

    def adapter(self, asked: str | None) -> str | None:
        """The adapter that a request uses: the one it asks for, otherwise the one named as the model."""
        if asked and not self.serves_adapters:
            raise RequestError(f"There is no adapter {asked!r} here.")
        return asked or self.lora_name

    @property
    def max_model_len(self) -> int:
        return self.session.door.plan.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        return self.session.tokenizer

    @property
    def defaults(self) -> SamplingParams:
        return self.session.door.defaults

    @property
    def sees(self) -> bool:
        return self.session.sight is not None

    def check_template_options(self, options: Mapping[str, Any] | None, tools: Sequence[Any] | None) -> None:
        """Refuse likely misspellings of options that the model's template reads."""
        if options:
            self.session.unread_template_options(options, tools)

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        """Render a conversation. Called in a thread for templates, since it waits for another process."""
        session = self.session
        turn = session.template_input(
            conversation, tools, template_options or {}, adds_generation_prompt=add_generation_prompt
        )
        if chat_template is None:
            [text] = session.render_model_template([turn])
        else:
            [text] = session.render_request_template(chat_template, [turn])
        if isinstance(text, RequestError):
            raise text
        return text

    async def stream(
        self,
        prompt: RenderedPrompt | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[SubmittedPrompt], None],
    ) -> AsyncGenerator[PackedOutput]:
        """The answer's news as it arrives; unless `is_streamed`, everything at the end. Closing it aborts the request.

        `on_submit` is called when the request goes to the engine. News is charged to `charge`, and released by its
        reader. The charged clients take turns at the engine.
        """
        session, signal = self.session, NewsSignal()

        def admit() -> PendingRequest:
            asked = list(session.door.parse([prompt], params))
            return session.door.of(charge.client).admit(asked, signal.notify, is_streamed=is_streamed)[0]

        # In a thread, so that other streams continue: tokenizer files are untrusted and may be slow, and so may media.
        media = prompt.media if isinstance(prompt, RenderedPrompt) else ()
        charge.grow(sum(len(medium.data) for medium in media))  # in addition to the body, in which they are text
        threads = self.threads.media if media else self.threads.texts
        request = await threads.run(admit, client=charge.client)
        if request.is_finished:  # refused at the door
            yield request.take_packed()
            return
        charge.grow(request.own_bytes)
        request.charge = charge
        submitted = SubmittedPrompt(request, session.transport)
        try:
            session.transport.submit([request])
            on_submit(submitted)
            is_finished = False
            while not is_finished:
                await signal.wait()
                if not is_streamed and not request.is_finished and request.error is None:
                    continue
                # Take all news: an error after the last piece isn't signalled a second time.
                while not is_finished and (packed := request.poll(request.take_packed)) is not None:
                    is_finished = packed.output.finished
                    yield packed
        finally:
            submitted.leave()

    async def numbers(
        self,
        prompts: Iterable[tuple[Any, PoolingParams]],
        charge: Charge,
        *,
        cache_salt: str | None,
        on_submit: Callable[[SubmittedPrompt], None],
    ) -> list[Any]:
        """The `PoolingRequestOutput` of each prompt, once all have one; cancelling it aborts them.

        A prompt that is refused ends the wait for the others. The outputs stay charged to `charge`.
        """
        session, signal = self.session, NewsSignal()
        remaining = iter(prompts)
        at_door = {"cache_salt": cache_salt, "lora_name": self.lora_name}

        def admit() -> list[PendingRequest]:
            asked = [_pooled(prompt, params, at_door) for prompt, params in islice(remaining, _TEXTS_AT_ONCE)]
            return session.door.of(charge.client).admit(asked, signal.notify)

        requests: list[PendingRequest] = []
        try:
            # In a thread, so that other streams continue: tokenizer files are untrusted and may be slow.
            while admitted := await self.threads.texts.run(admit, client=charge.client):
                if any(request.is_finished for request in admitted):  # refused at the door
                    return [request.take() if request.is_finished else None for request in [*requests, *admitted]]
                charge.grow(sum(request.own_bytes for request in admitted))
                for request in admitted:
                    request.charge = charge
                requests += admitted
                session.transport.submit(admitted)
                for request in admitted:
                    on_submit(SubmittedPrompt(request, session.transport))
            for request in requests:
                while not request.is_finished and request.error is None:
                    await signal.wait()
            return await self.threads.answers.run(_taken, requests, client=charge.client)
        finally:
            session.transport.abort(requests)


def _pooled(prompt: Any, params: PoolingParams, at_door: Mapping[str, str | None]) -> ParsedPrompt:
    sampling = msgspec.structs.replace(params.as_sampling(), **at_door)
    return replace(parse_prompt(prompt, sampling), pooled=params)


def _taken(requests: Sequence[PendingRequest]) -> list[Any]:
    """The output of each; raises the error that has ended one of them."""
    return [request.poll(request.take) for request in requests]
