"""A model opened for use: what `LLM` and `AsyncLLM` need of one, wherever its process tree belongs.

`PrivateSession` has a tree of its own, `AttachedSession` is a client of the daemon. A session submits requests by its
transport and returns a `Window` of many or a `Stream` of one; its callers do the waiting.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ...protocol.errors import AdapterError, LimitError, ModelNotFoundError, PenstockError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.header import is_gguf
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.sampling import SamplingParams
from ..media.sources.parts import check_media_parts
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
from ..requests.request import DoorProtocol, Notify, RequestT
from .transport import Transport
from .window import Window

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


class LoraAdapters(Protocol):
    def load(self, name: str, path: str | os.PathLike[str]) -> None: ...
    def unload(self, name: str) -> None: ...
    def names(self) -> list[str]: ...


class Session(ABC, Generic[RequestT]):
    config: EngineConfig
    is_quiet: bool
    plan: MemoryPlan | None  # once it is ready
    daemon: str | None  # the address of the daemon that holds the model
    transport: Transport[RequestT]
    door: DoorProtocol[RequestT]  # once it is ready
    adapters: LoraAdapters
    tokenizer: "Tokenizer"

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
        """The exact text that a conversation becomes."""

    @abstractmethod
    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Sequence[RenderedPrompt | RequestError | Conversation]:
        """One prompt for each conversation, as `window` takes them."""

    def render_call(
        self,
        messages: Any,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Sequence[RenderedPrompt | RequestError | Conversation]:
        """One prompt for each conversation of a call. What is wrong with a conversation given by itself raises; one in
        a list of them is refused alone."""
        conversations = as_conversations(messages)
        prompts = self.render_batch(conversations, chat_template, tools, template_options)
        if conversations is messages:
            return prompts
        [prompt] = prompts
        if isinstance(prompt, RequestError):
            raise prompt
        if isinstance(prompt, Conversation):  # to be rendered by the daemon, or with its media once they are opened
            if self.sees:
                check_media_parts(prompt.messages)
            self._try(prompt)
        return prompts

    def _try(self, conversation: Conversation) -> None:
        """Raise what its rendering raises, but for a text that is too long, which ends the request."""
        options = conversation.template_options
        try:
            self.render(conversation.messages, conversation.chat_template, conversation.tools, True, options)
        except LimitError:
            pass
        except PenstockError:
            raise
        except Exception as error:  # of a value whose own methods fail, or that no message can carry
            raise RequestError(f"This conversation can't be rendered: {type(error).__name__}.") from error

    @property
    def sees(self) -> bool:
        """Whether requests may bring pictures, once it is ready."""
        return self.plan is not None and self.plan.media is not None

    def window(self, prompts: Iterable[Any], params: Params, notify: Notify, *, ordered: bool) -> Window[RequestT]:
        """A window of many requests; `notify` is called for each that has ended."""
        self.transport.check()
        parsed = parse_prompts(prompts, params, self.door.defaults)
        return Window(self.transport, self.door, parsed, notify, self.config.window, ordered=ordered)

    def stream(
        self,
        prompt: Any,
        params: SamplingParams | BeamSearchParams | None,
        notify: Notify,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> "Stream[RequestT]":
        """One prompt or conversation whose answer is wanted as it comes; `notify` hears of each piece."""
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
        """End a running request, which keeps what it has."""
        if (request := self.transport.find(request_id)) is not None:
            self.transport.cancel([request])


class Stream(Generic[RequestT]):
    """One request whose answer is read as it comes; leaving its `with` aborts it.

    Until it `is_over`, wait until its owner was notified if it `has_to_wait`, then `poll` it. Without a `with` call
    `submit` first, and `abort` if what is still to come is not wanted.
    """

    def __init__(self, transport: Transport[RequestT], request: RequestT) -> None:
        self.has_to_wait = not request.is_finished  # else it was refused at the door
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
        """What has come since the last look; raises what ended the request from without."""
        output = self._request.poll(self._request.take)
        self.is_over = output is not None and output.finished
        return output

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Have it dropped; nothing more comes."""
        if self.has_to_wait:
            self._transport.abort([self._request])

    def cancel(self) -> None:
        """Have it ended; it still gets its last words, with what it has."""
        if self.has_to_wait:
            self._transport.cancel([self._request])


def check_adapter_name(name: str) -> None:
    """Raises unless it can travel in a message: text, without half a surrogate pair."""
    if not isinstance(name, str) or not name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise AdapterError(f"An adapter's name must be text, and {shown(name)} is not.", "files")


def adapter_folder(name: str, path: str | os.PathLike[str]) -> str:
    """Its absolute path, of a folder or a GGUF file; raises if the name is no text or there is neither."""
    check_adapter_name(name)
    folder = Path(os.path.expanduser(path)).absolute()
    if not os.path.isdir(folder) and not is_gguf(folder):
        raise ModelNotFoundError(
            f"There is no adapter at {folder}: it must be a folder that PEFT saved, or a GGUF file of one."
        )
    return str(folder)
