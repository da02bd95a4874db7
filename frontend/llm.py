"""`LLM`: a model for a script, in a process tree of its own or held by the daemon.

    llm = LLM("/path/to/model")
    for output in llm.generate(["Hello"], SamplingParams(max_tokens=32)):
        print(output.outputs.text)

Only what users call stands here; everything else is behind `Session`, which a private tree and the daemon share.
"""

import os
import queue
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from ..protocol.errors import EngineDeadError
from ..protocol.options.options import EngineOptions, explain_options
from ..protocol.outputs import RequestOutput
from ..protocol.parameters.beams import BeamSearchParams, beams_of
from ..protocol.parameters.sampling import SamplingParams
from ..protocol.stats import Stats
from .call_arguments import named_arguments
from .console.progress import Progress
from .console.shown_model import shown_model
from .requests.prompts import Messages, Params, as_batch, as_conversations
from .requests.request import Request
from .session import open_model
from .session.session import Stream

if TYPE_CHECKING:
    from .text.tokenizer import Tokenizer


@explain_options
class LLM:
    """Starts the tree and returns when it is ready. `close()`, `with`, garbage collection and exit end it."""

    def __init__(self, model: str | os.PathLike[str], **options: Unpack[EngineOptions]) -> None:
        self._session = open_model(model, {**options})
        self._model = str(model)
        # Before waiting: a Ctrl-C during the start must find someone who ends the children.
        self._finalizer = weakref.finalize(self, self._session.transport.close)
        self._session.wait_until_ready()

    @named_arguments
    def generate(self, prompts: Any, sampling_params: Params = None, use_tqdm: bool = True) -> list[RequestOutput]:
        """Complete prompts; results stand in the order of the prompts.

        A prompt is text, a list of token ids, or a dict with `prompt` or `prompt_token_ids` (and `priority`,
        `cache_salt`, `lora_name`). No template is applied. One request's fault ends it alone, with `error_code`.
        """
        finished: dict[int, RequestOutput] = {}
        try:
            for position, output in self._run(as_batch(prompts), sampling_params, use_tqdm, ordered=False):
                finished[position] = output
        except (KeyboardInterrupt, EngineDeadError) as error:
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
        run = self._run(as_batch(prompts), sampling_params, use_tqdm, ordered)
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
        """Answer one conversation or many through the model's chat template."""
        self._session.transport.check()
        texts = self._session.render_batch(
            as_conversations(messages),
            chat_template=chat_template,
            tools=tools,
            template_options=chat_template_kwargs,
        )
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
        arrived: queue.SimpleQueue[Request] = queue.SimpleQueue()
        stream = self._session.stream(prompt, sampling_params, arrived.put, tools, chat_template_kwargs)
        return self._streamed(stream, arrived)

    def _streamed(
        self, stream: Stream[Any], arrived: "queue.SimpleQueue[Request]"
    ) -> Generator[RequestOutput, None, None]:
        with stream:
            while not stream.is_over:
                if stream.has_to_wait:
                    arrived.get()
                if (output := stream.poll()) is not None:
                    yield output

    @named_arguments
    def beam_search(self, prompts: Any, params: BeamSearchParams, use_tqdm: bool = True) -> list[RequestOutput]:
        """Search each prompt's likeliest answers: `outputs` are `beam_width` of them, best first, with their `score`.

        Prompts are what `generate` takes.
        """
        return self.generate(prompts, beams_of(params), use_tqdm)

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

        Running requests go on meanwhile. Raises `AdapterError` (a `ConfigError`) where it cannot be used.
        """
        self._session.adapters.load(name, path)

    def unload_lora(self, name: str) -> None:
        """Forget an adapter; refused while requests use it."""
        self._session.adapters.unload(name)

    def list_loras(self) -> list[str]:
        """The names that requests may use."""
        return self._session.adapters.names()

    def stats(self) -> Stats:
        """What the engine holds and has done: requests, blocks, steps, tokens."""
        return self._session.transport.stats()

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

    def _run(
        self, prompts: Iterable[Any], params: Params, use_tqdm: bool, ordered: bool
    ) -> Iterator[tuple[int, RequestOutput]]:
        """Positions in the input and outputs."""
        done: queue.SimpleQueue[Request] = queue.SimpleQueue()
        window = self._session.window(prompts, params, done.put, ordered=ordered)
        total = len(prompts) if isinstance(prompts, Sequence) else None
        progress = Progress(total) if use_tqdm and not self._session.is_quiet else None
        try:
            while not window.is_over:
                window.fill()
                while not done.empty():
                    window.finish(done.get())
                for position, output in window.ready():
                    if progress is not None:
                        progress.add(output)
                    yield position, output
                if window.running:
                    window.finish(done.get())
        finally:
            window.abandon()
            if progress is not None:
                progress.close()
