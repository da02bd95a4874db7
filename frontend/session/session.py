"""A model opened for use: the interface for `LLM` and `AsyncLLM`, wherever its process tree runs.

`PrivateSession` has a tree of its own, `AttachedSession` is a client of the daemon. A session submits requests through
its transport and returns a `Window` of many or a `Stream` of one; its callers wait.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ...protocol.errors import AdapterError, ConfigError, LimitError, ModelNotFoundError, PenstockError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.header import is_gguf
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ..console import logs
from ..media.sources.parts import check_media_parts
from ..models.pooled_model import PooledModel, find_pooled_model
from ..requests.prompts import (
    Conversation,
    Messages,
    Params,
    RenderedPrompt,
    as_conversations,
    is_conversation,
    is_several,
    parse_prompts,
)
from ..requests.request import DoorProtocol, EarlierAnswers, Notify, RequestT
from .transport import Transport
from .window import Window

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


class LoraAdapters(Protocol):
    def load(self, name: str, path: str | os.PathLike[str]) -> None: ...
    def unload(self, name: str) -> None: ...
    def names(self) -> list[str]: ...
    def folders(self) -> dict[str, str]: ...  # by name


class Session(ABC, Generic[RequestT]):
    config: EngineConfig
    is_quiet: bool
    plan: MemoryPlan | None  # once it is ready
    daemon: str | None  # the address of the daemon that has the model
    transport: Transport[RequestT]
    door: DoorProtocol[RequestT]  # once it is ready
    adapters: LoraAdapters
    tokenizer: "Tokenizer"
    open_replay: Callable[[], EarlierAnswers] | None = None  # if the options name a run to replay
    replay: EarlierAnswers | None = None  # the same, once it is read
    most_texts: int | None = None  # that one line of a batch may have; None: any number
    _has_said_cut = False

    @property
    @abstractmethod
    def tree_config(self) -> EngineConfig:
        """The options that the tree runs with, whoever gave them."""

    @property
    @abstractmethod
    def model_folders(self) -> tuple[Path, Path]:
        """The folders of the model and of its tokenizer."""

    @property
    def pooled(self) -> PooledModel | None:
        """What the model gives instead of text; None if it writes text."""
        return find_pooled_model(self.model_folders[0], self.tree_config.runner)

    @property
    def longest_pooled(self) -> int:
        """The most tokens of a prompt that ends in numbers."""
        own = sys.maxsize if self.pooled is None else self.pooled.longest or sys.maxsize
        return own if self.plan is None else min(own, self.plan.max_model_len)

    @abstractmethod
    def wait_until_ready(self) -> None: ...

    @abstractmethod
    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        """The exact text of a rendered conversation."""

    @abstractmethod
    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Sequence[RenderedPrompt | RequestError | Conversation]:
        """One prompt for each conversation, as `window` takes them."""

    def require_text(self, call: str, params: Any = None) -> None:
        """Raise if the model writes no text; with `PoolingParams` a call asks for what it gives."""
        given = params if isinstance(params, list | tuple) else [params]
        if any(isinstance(each, PoolingParams) for each in given) or (pooled := self.pooled) is None:
            return
        calls = "embed, encode or score" if pooled.task == "embed" else "classify, encode or score"
        raise ConfigError(
            f"{call} takes a model that writes text, and {self.tree_config.model} gives numbers. Use {calls}, or "
            "another model."
        )

    def render_call(
        self,
        messages: Any,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Sequence[RenderedPrompt | RequestError | Conversation]:
        """One prompt for each conversation of a call. An error in a single conversation is raised; one in a list is
        refused alone."""
        self.require_text("chat")
        conversations = as_conversations(messages)
        prompts = self.render_batch(conversations, chat_template, tools, template_options)
        if conversations is messages:
            return prompts
        [prompt] = prompts
        if isinstance(prompt, RequestError):
            raise prompt
        if isinstance(prompt, Conversation):  # rendered by the daemon, or with its media once they are opened
            if self.sees:
                check_media_parts(prompt.messages)
            self._try(prompt)
        return prompts

    def _try(self, conversation: Conversation) -> None:
        """Raise errors of rendering, except for a text that is too long, which ends the request."""
        options = conversation.template_options
        try:
            self.render(conversation.messages, conversation.chat_template, conversation.tools, True, options)
        except LimitError:
            pass
        except PenstockError:
            raise
        except Exception as error:  # a value whose own methods fail, or that can't be sent
            raise RequestError(f"This conversation can't be rendered: {type(error).__name__}.") from error

    @property
    def sees(self) -> bool:
        """Whether requests may have pictures, once it is ready."""
        return self.plan is not None and self.plan.media is not None

    @property
    def window_size(self) -> int:
        """How many requests of one call may be in flight now."""
        return self.config.window

    def num_tokens(self, text: str) -> int:
        """The length of a text in the model's tokens."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def _read_replay(self) -> None:
        if self.open_replay is not None:
            self.replay = self.open_replay()

    def _take_up_replay(self) -> None:
        """Let the door find earlier answers; raises if they are of another vocabulary."""
        if self.replay is not None and self.plan is not None:
            self.replay.begin(self.plan.vocab_size, self.plan.max_model_len, lambda: self.tokenizer)
            self.door.replay = self.replay

    def window(self, prompts: Iterable[Any], params: Params, notify: Notify, *, ordered: bool) -> Window[RequestT]:
        """A window of many requests; `notify` is called for each that has ended."""
        self.transport.check()
        self._say_cut(params if isinstance(params, list | tuple) else [params])
        parsed = parse_prompts(prompts, params, self.door.defaults)
        return Window(self.transport, self.door, parsed, notify, self.window_size, ordered=ordered)

    def _say_cut(self, params: Iterable[Any]) -> None:
        """Say once what the model's files don't speak of. Replies have it each time: they depend on nothing earlier."""
        for each in () if self._has_said_cut else params:
            if isinstance(each, PoolingParams) and (notice := self.notice_of_cut(each.dimensions)):
                logs.say(notice, quiet=self.is_quiet)
                self._has_said_cut = True
                break

    def notice_of_cut(self, dimensions: int | None) -> str:
        """What to say of vectors cut to this length, if the model's files don't speak of it."""
        if dimensions is None or (pooled := self.pooled) is None:
            return ""
        width = 0 if self.plan is None else self.plan.vector_width
        return pooled.notice_of_cut(dimensions) if dimensions < width else ""

    def stream(
        self,
        prompt: Any,
        params: SamplingParams | BeamSearchParams | None,
        notify: Notify,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> "Stream[RequestT]":
        """Stream the answer to one prompt or conversation; `notify` is called for each piece."""
        self.transport.check()
        if is_several(prompt):
            raise RequestError(
                f"stream answers one prompt or conversation, and was given a list of {len(prompt):,}; lists go to "
                "generate and chat."
            )
        given = {"tools": tools, "chat_template_kwargs": template_options}
        for name, value in given.items():
            if value and not is_conversation(prompt):
                raise RequestError(f"{name} goes with a conversation, and this prompt is none.")
        if is_conversation(prompt):
            [prompt] = self.render_call(prompt, None, tools, template_options)
        parsed = list(parse_prompts([prompt], params, self.door.defaults))
        [request] = self.door.admit(parsed, notify, is_streamed=True)
        return Stream(self.transport, request)

    def cancel(self, request_id: int) -> None:
        """End a running request, which keeps its output so far."""
        if (request := self.transport.find(request_id)) is not None:
            self.transport.cancel([request])


class Stream(Generic[RequestT]):
    """One request with a streamed answer; leaving its `with` block aborts it.

    Until it `is_over`: if it `has_to_wait`, wait for the notification, then `poll` it. Without a `with` block, call
    `submit` first, and `abort` if the rest is not wanted.
    """

    def __init__(self, transport: Transport[RequestT], request: RequestT) -> None:
        self.has_to_wait = not request.is_finished  # otherwise it was refused at the door
        self.is_over = False
        self._transport = transport
        self._request = request

    @property
    def request_id(self) -> str:
        return str(self._request.request_id)

    @property
    def refusal(self) -> RequestError | None:
        """Why it was refused at the door."""
        return self._request.refusal

    def __enter__(self) -> "Stream[RequestT]":
        self.submit()
        return self

    def submit(self) -> None:
        if self.has_to_wait:
            self._transport.submit([self._request])

    def poll(self) -> RequestOutput | None:
        """The output since the last call; raises an error that ended the request from outside."""
        output = self._request.poll(self._request.take)
        self.is_over = output is not None and output.finished
        return output

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Drop the request; nothing more arrives."""
        if self.has_to_wait:
            self._transport.abort([self._request])

    def cancel(self) -> None:
        """End the request; it still gets a last delta with its output so far."""
        if self.has_to_wait:
            self._transport.cancel([self._request])


def check_adapter_name(name: str) -> None:
    """Raise unless the name can be sent in a message: text, without half a surrogate pair."""
    if not isinstance(name, str) or not name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise AdapterError(f"An adapter's name must be text, and {shown(name)} is not.", "files")


def adapter_folder(name: str, path: str | os.PathLike[str]) -> str:
    """The absolute path of a folder or GGUF file; raises if the name can't be one or the path doesn't exist."""
    check_adapter_name(name)
    if "," in name:  # in a label of vLLM's metrics it separates names
        raise AdapterError(f"An adapter's name must have no comma, and {shown(name)} has one.", "files")
    folder = Path(os.path.expanduser(path)).absolute()
    if not os.path.isdir(folder) and not is_gguf(folder):
        raise ModelNotFoundError(
            f"There is no adapter at {folder}: it must be a folder that PEFT saved, or a GGUF file of one."
        )
    return str(folder)
