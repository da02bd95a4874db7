"""`AsyncLLM`: the same model for a program with an event loop.

The model is opened in a thread while the loop continues (`session/opening.py`); the first call waits for it. Each
result is passed to the loop that requested it. This file has only what users call; everything else is behind `Session`.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from ..protocol.errors import RequestError
from ..protocol.fields.rules import shown
from ..protocol.options.config import EngineConfig
from ..protocol.options.options import EngineOptions, explain_options
from ..protocol.outputs import RequestOutput
from ..protocol.parameters.beams import BeamSearchParams, beams_of
from ..protocol.parameters.pooling import PoolingParams
from ..protocol.parameters.sampling import SamplingParams
from ..protocol.stats import Stats
from .call_arguments import HelpfulNames, named_arguments
from .console.progress import Failures
from .console.shown_model import shown_model
from .pooling.calls import AsyncPoolingCalls
from .requests.prompts import Messages, Params, as_batch, may_have_media
from .requests.request import Notify, Request
from .session.opening import OpeningSession
from .session.session import Session
from .session.threads import LoopQueue, Threads, in_own_thread
from .session.window import Window

if TYPE_CHECKING:
    from .jobs.call import JobResult
    from .metrics import Metric
    from .text.tokenizer import Tokenizer
    from .verify.verdict import Verdict


@explain_options
class AsyncLLM(HelpfulNames, AsyncPoolingCalls):
    """Options that cannot work raise here; what goes wrong while the tree starts is raised by the first `await`."""

    def __init__(self, model: str | os.PathLike[str], **options: Unpack[EngineOptions]) -> None:
        given: dict[str, Any] = {**options}
        EngineConfig.from_options(model, **given)
        self._model = str(model)
        # For questions to the model: the caller's own threads stay free.
        self._threads = Threads("Questions about adapters and figures", 4, patience=float("inf"))
        self._media = Threads("Pictures", 4, patience=float("inf"))
        self._opening = OpeningSession()
        self._finalizer = weakref.finalize(self, self._opening.close)
        try:
            self._opening.begin(model, given)
        except BaseException:
            self._finalizer()
            raise

    @property
    def _session(self) -> Session[Any]:
        """The session; waits until it is opened, which takes a moment if a daemon is asked first."""
        return self._opening.session

    async def ready(self) -> None:
        """Wait until the model is loaded; every call does so by itself."""
        await self._opening.ready()

    async def ready_session(self) -> Session[Any]:
        """The session once it is ready, for a server that uses this model."""
        await self.ready()
        return self._session

    def loaded_session(self) -> Session[Any] | None:
        """The same without waiting: None while the model is loading. Raises what its start has failed with."""
        return self._opening.loaded

    @named_arguments
    async def generate(self, prompts: Any, sampling_params: Params = None) -> list[RequestOutput]:
        """Complete prompts; results are in the order of the prompts. Cancelling aborts what runs."""
        await self.ready()
        self._session.require_text("generate", sampling_params)
        tell, done = _news()
        batch = as_batch(prompts)
        # An iterable may have any prompts.
        opens = self._session.sees and (not isinstance(batch, Sequence) or any(map(may_have_media, batch)))
        window = self._session.window(batch, sampling_params, tell, ordered=True)
        outputs: list[RequestOutput] = []
        try:
            while not window.is_over:
                await self._filled(window, opens=opens)
                outputs += [output for _, output in window.ready()]
                if window.running:
                    window.finish(await done.get())
        finally:
            window.abandon()
        failures = Failures()
        for output in outputs:
            if output.error_code != 200:
                failures.add(output)
        if failures.failed and not self._session.is_quiet:
            failures.say(len(outputs))
        return outputs

    async def _filled(self, window: Window[Any], *, opens: bool) -> None:
        """Fill a window, in a thread if pictures may have to be opened and decoded."""
        if not opens:
            return window.fill()
        filling = asyncio.ensure_future(self._media.run(window.fill))
        try:
            await asyncio.shield(filling)
        except asyncio.CancelledError:  # the window must not be abandoned while it is filled
            await asyncio.gather(filling, return_exceptions=True)
            raise

    @named_arguments
    async def chat(
        self,
        messages: Any,
        sampling_params: Params = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or many through the model's chat template.

        An error in a single conversation is raised; one in a list ends that conversation alone.
        """
        await self.ready()
        texts = self._session.render_call(messages, chat_template, tools, chat_template_kwargs)
        return await self.generate(texts, sampling_params)

    @named_arguments
    async def stream(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """One prompt or conversation; yields outputs that hold what is new. Leaving the loop aborts the request."""
        await self.ready()
        self._session.require_text("stream", sampling_params)
        tell, arrived = _news()
        arguments = (prompt, sampling_params, tell, tools, chat_template_kwargs)
        opens = self._session.sees and may_have_media(prompt)
        begin = self._session.stream
        with await self._media.run(begin, *arguments) if opens else begin(*arguments) as stream:
            while not stream.is_over:
                if stream.has_to_wait:
                    await arrived.get()
                if (output := stream.poll()) is not None:
                    yield output

    @named_arguments
    async def beam_search(self, prompts: Any, params: BeamSearchParams) -> list[RequestOutput]:
        """Each prompt's likeliest answers: `outputs` are `beam_width` of them, best first, with their `score`."""
        return await self.generate(prompts, beams_of(params))

    @named_arguments
    async def batch(
        self,
        input: str | os.PathLike[str],
        output: str | os.PathLike[str],
        sampling_params: SamplingParams | PoolingParams | None = None,
        accept_change: bool = False,
        retry_errors: bool = False,
        raw: bool = False,
        system: str | None = None,
        commit_seconds: float = 1.0,
        replay: str | os.PathLike[str] | None = None,
    ) -> "JobResult":
        """Answer each line of a file, as `LLM.batch` does. Cancelling ends the run; the same call continues it."""
        from .jobs.call import answer_file  # few programs need it

        await self.ready()
        is_stopped = Event()
        work = partial(
            answer_file,
            self._session,
            input,
            output,
            sampling_params,
            shows_progress=False,
            accept_change=accept_change,
            retry_errors=retry_errors,
            raw=raw,
            system=system,
            commit_seconds=commit_seconds,
            replay=replay,
            is_stopped=is_stopped,
        )
        run = asyncio.ensure_future(in_own_thread(work))
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            is_stopped.set()
            await asyncio.gather(run, return_exceptions=True)
            raise

    async def abort(self, request_id: str) -> None:
        """End a running request; its caller gets the output so far, with `error_code` 499."""
        if not isinstance(request_id, str):
            raise RequestError(
                f"request_id={shown(request_id)}: must be that of an output, which is text: abort(output.request_id)."
            )
        await self.ready()
        if request_id.isdecimal():
            self._session.cancel(int(request_id))

    @named_arguments
    async def verify(self, outputs: Any, input: str | os.PathLike[str] | None = None) -> "list[Verdict]":
        """Check that answers with a receipt are what this model says, as `LLM.verify` does."""
        from .verify.judging import judged

        await self.ready()
        return await in_own_thread(lambda: list(judged(self._session, outputs, input)))

    def apply_chat_template(
        self,
        messages: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **template_options: Any,
    ) -> str:
        """The exact text that `chat` would send."""
        return self._session.render(messages, chat_template, tools, add_generation_prompt, template_options)

    async def load_lora(self, name: str, path: str | os.PathLike[str]) -> None:
        """Load a LoRA adapter that PEFT saved in the folder `path`; requests may then give `lora_name=name`."""
        await self.ready()
        await self._threads.run(self._session.adapters.load, name, path)

    async def unload_lora(self, name: str) -> None:
        """Forget an adapter; refused while requests use it."""
        await self.ready()
        await self._threads.run(self._session.adapters.unload, name)

    async def list_loras(self) -> list[str]:
        """The names that requests may use."""
        await self.ready()
        return await self._threads.run(self._session.adapters.names)

    async def stats(self) -> Stats:
        """The engine's statistics: requests, blocks, steps, tokens."""
        await self.ready()
        return await self._threads.run(self._session.transport.stats)

    async def get_metrics(self) -> "list[Metric]":
        """The same as a list of counters and gauges with name, labels and value, as vLLM's call returns them."""
        from .metrics import metrics_of  # few scripts need it

        return metrics_of(await self.stats(), self._model)

    async def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of a call without any, from the model's own files."""
        await self.ready()
        return msgspec.structs.replace(self._session.door.defaults)

    def get_tokenizer(self) -> "Tokenizer":
        return self._session.tokenizer

    async def close(self) -> None:
        """End the process tree, or leave the daemon; requests still running fail."""
        await in_own_thread(self._finalizer)

    def __repr__(self) -> str:
        opening = getattr(self, "_opening", None)
        session, state = opening.state if opening else (None, "not open")
        return shown_model("AsyncLLM", getattr(self, "_model", ""), session, state)

    async def __aenter__(self) -> "AsyncLLM":
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _news() -> "tuple[Notify, asyncio.Queue[Request]]":
    """A callback for the client's thread when a request has news, and the queue that this loop reads."""
    heard: asyncio.Queue[Request] = asyncio.Queue()
    return LoopQueue(asyncio.get_running_loop(), heard.put_nowait).put, heard
