"""`LLM`: a model for a script, in a process tree of its own or held by the daemon.

    llm = LLM("/path/to/model")
    for output in llm.generate(["Hello"], SamplingParams(max_tokens=32)):
        print(output.outputs.text)

This file has only what users call; everything else is behind `Session`, which a private tree and the daemon share.
"""

import os
import queue
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from ..protocol.errors import EngineDeadError, RequestError
from ..protocol.fields.rules import FLAG
from ..protocol.options.options import EngineOptions, explain_options
from ..protocol.outputs import RequestOutput
from ..protocol.parameters.beams import BeamSearchParams, beams_of
from ..protocol.parameters.pooling import PoolingParams
from ..protocol.parameters.sampling import SamplingParams
from ..protocol.stats import Stats
from .call_arguments import HelpfulNames, named_arguments
from .console.progress import Failures, Progress
from .console.shown_model import shown_model
from .pooling.calls import PoolingCalls
from .requests.prompts import Messages, Params, as_batch
from .requests.request import Request
from .session import open_model
from .session.session import Stream
from .session.window import Window

if TYPE_CHECKING:
    from .jobs.call import JobResult
    from .metrics import Metric
    from .text.tokenizer import Tokenizer
    from .verify.verdict import Verdict


@explain_options
class LLM(HelpfulNames, PoolingCalls):
    """Starts the tree and returns when it is ready. `close()`, `with`, garbage collection and exit end it."""

    _says_failures = True  # once per call; False for callers who report failures themselves

    def __init__(self, model: str | os.PathLike[str], **options: Unpack[EngineOptions]) -> None:
        self._session = open_model(model, {**options})
        self._model = str(model)
        # Before waiting: after a Ctrl-C during the start, the children must still be ended.
        self._finalizer = weakref.finalize(self, self._session.transport.close)
        self._session.wait_until_ready()

    @named_arguments
    def generate(self, prompts: Any, sampling_params: Params = None, use_tqdm: bool = True) -> list[RequestOutput]:
        """Complete prompts; results are in the order of the prompts.

        A prompt is text, a list of token ids, or a dict with `prompt` or `prompt_token_ids` (and `priority`,
        `cache_salt`, `lora_name`). No template is applied. One request's fault ends it alone, with `error_code`.
        """
        finished: dict[int, RequestOutput] = {}
        call = self._call(as_batch(prompts), sampling_params, use_tqdm, ordered=False)
        try:
            for position, output in self._run(call):
                finished[position] = output
        except (KeyboardInterrupt, EngineDeadError) as error:
            with suppress(KeyboardInterrupt):  # a second one
                call.window.take_arrived(finished)
            error.results = [finished[position] for position in sorted(finished)]  # type: ignore[union-attr]
            raise
        return [finished[position] for position in range(len(finished))]

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of a call without any, from the model's own files."""
        return msgspec.structs.replace(self._session.door.defaults)

    @named_arguments
    def generate_iter(
        self, prompts: Iterable[Any], sampling_params: Params = None, use_tqdm: bool = False, ordered: bool = True
    ) -> Iterator[RequestOutput]:
        """Complete prompts from any iterable, keeping a window of them submitted.

        Yields in input order, or with `ordered=False` as they complete.
        """
        self._session.transport.check()
        run = self._run(self._call(as_batch(prompts), sampling_params, use_tqdm, ordered))
        return (output for _, output in run)

    @named_arguments
    def chat(
        self,
        messages: Any,
        sampling_params: Params = None,
        use_tqdm: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or many through the model's chat template.

        An error in a single conversation is raised; one in a list ends that conversation alone.
        """
        self._session.transport.check()
        texts = self._session.render_call(messages, chat_template, tools, chat_template_kwargs)
        return self.generate(texts, sampling_params, use_tqdm)

    @named_arguments
    def stream(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
    ) -> Generator[RequestOutput, None, None]:
        """One prompt or conversation; yields outputs that hold what is new. Leaving the loop aborts the request."""
        self._session.require_text("stream", sampling_params)
        arrived: queue.SimpleQueue[Request] = queue.SimpleQueue()
        stream = self._session.stream(prompt, sampling_params, arrived.put, tools, chat_template_kwargs)
        return self._streamed(stream, arrived)

    def _streamed(
        self, stream: Stream[Any], arrived: "queue.SimpleQueue[Request]"
    ) -> Generator[RequestOutput, None, None]:
        failures = Failures()
        with stream:
            while not stream.is_over:
                if stream.has_to_wait:
                    arrived.get()
                if (output := stream.poll()) is not None:
                    if output.finished and output.error_code != 200:
                        failures.add(output)
                    yield output
        if failures.failed:
            self._say(failures, 1)

    @named_arguments
    def beam_search(self, prompts: Any, params: BeamSearchParams, use_tqdm: bool = True) -> list[RequestOutput]:
        """Search each prompt's likeliest answers: `outputs` are `beam_width` of them, best first, with their `score`.

        Prompts are what `generate` takes.
        """
        return self.generate(prompts, beams_of(params), use_tqdm)

    @named_arguments
    def batch(
        self,
        input: str | os.PathLike[str],
        output: str | os.PathLike[str],
        sampling_params: SamplingParams | PoolingParams | None = None,
        use_tqdm: bool = True,
        accept_change: bool = False,
        retry_errors: bool = False,
        raw: bool = False,
        system: str | None = None,
        commit_seconds: float = 1.0,
        replay: str | os.PathLike[str] | None = None,
    ) -> "JobResult":
        """Answer each line of a file, as `penstock batch` does: after any interruption the same call continues.

        With `PoolingParams` the lines are texts, and the output (.npy, .parquet, .jsonl) has their vectors, as with
        `penstock embed`. `replay` is the output of an earlier run, whose answers are drafts of this one's: the answers
        are the same, and come sooner.
        """
        from .jobs.call import answer_file  # few scripts need it

        return answer_file(
            self._session,
            input,
            output,
            sampling_params,
            shows_progress=use_tqdm,
            accept_change=accept_change,
            retry_errors=retry_errors,
            raw=raw,
            system=system,
            commit_seconds=commit_seconds,
            replay=replay,
        )

    @named_arguments
    def verify(self, outputs: Any, input: str | os.PathLike[str] | None = None) -> "list[Verdict]":
        """Check that answers with a receipt are what this model says: `RequestOutput`s, or the path of a file of
        `penstock batch` or of HTTP bodies. `input` is the file that was answered, if its prompts have pictures."""
        from .verify.judging import judged

        return list(judged(self._session, outputs, input))

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

    def get_tokenizer(self) -> "Tokenizer":
        return self._session.tokenizer

    def load_lora(self, name: str, path: str | os.PathLike[str]) -> None:
        """Load a LoRA adapter that PEFT saved in the folder `path`; requests may then give `lora_name=name`.

        Running requests continue meanwhile. Raises `AdapterError` (a `ConfigError`) if it cannot be used.
        """
        self._session.adapters.load(name, path)

    def unload_lora(self, name: str) -> None:
        """Forget an adapter; refused while requests use it."""
        self._session.adapters.unload(name)

    def list_loras(self) -> list[str]:
        """The names that requests may use."""
        return self._session.adapters.names()

    def stats(self) -> Stats:
        """The engine's statistics: requests, blocks, steps, tokens."""
        return self._session.transport.stats()

    def get_metrics(self) -> "list[Metric]":
        """The same as a list of counters and gauges with name, labels and value, as vLLM's call returns them."""
        from .metrics import metrics_of  # few scripts need it

        return metrics_of(self.stats(), self._model)

    def close(self) -> None:
        """End the process tree, or leave the daemon; what still runs fails. The object cannot be used afterwards."""
        self._finalizer()

    def __repr__(self) -> str:
        session = getattr(self, "_session", None)
        return shown_model("LLM", getattr(self, "_model", ""), session, "" if session else "not open")

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, prompts: Iterable[Any], params: Params, use_tqdm: bool, ordered: bool) -> "_Call":
        self._session.require_text("generate", params)
        shows_progress = FLAG.checked("use_tqdm", use_tqdm, RequestError)
        ordered = FLAG.checked("ordered", ordered, RequestError)
        done: queue.SimpleQueue[Request] = queue.SimpleQueue()
        window = self._session.window(prompts, params, done.put, ordered=ordered)
        total = len(prompts) if isinstance(prompts, Sequence) else None
        return _Call(window, done, total, shows_progress=shows_progress and not self._session.is_quiet)

    def _run(self, call: "_Call") -> Iterator[tuple[int, RequestOutput]]:
        """Positions in the input and outputs."""
        window, done, failures, total = call.window, call.done, Failures(), 0
        progress = Progress(call.total) if call.shows_progress else None
        try:
            while not window.is_over:
                window.fill()
                while not done.empty():
                    window.finish(done.get())
                for position, output in window.ready():
                    total += 1
                    if output.error_code != 200:
                        failures.add(output)
                    if progress is not None:
                        progress.add(output)
                    yield position, output
                if window.running:
                    window.finish(done.get())
        finally:
            window.abandon()
            if progress is not None:
                progress.close()
            if failures.failed:
                self._say(failures, total)

    def _say(self, failures: Failures, total: int) -> None:
        if self._says_failures and not self._session.is_quiet:
            failures.say(total)


class _Call(NamedTuple):
    """A batch call in progress."""

    window: Window[Any]
    done: "queue.SimpleQueue[Request]"  # requests that have ended
    total: int | None
    shows_progress: bool
