"""A model opened for use: what `LLM` and `AsyncLLM` need of one, wherever its process tree belongs.

`PrivateSession` has a tree of its own, `AttachedSession` is a client of the daemon. A session submits requests by its
transport and returns a `Window` of many or a `Stream` of one; its callers do the waiting.
"""

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ...protocol.errors import AdapterError, ModelNotFoundError, PenstockError, RequestError, same_error
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.header import is_gguf
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.beams import BeamSearchParams
from ...protocol.parameters.sampling import SamplingParams
from ..requests.prompts import (
    Conversation,
    Messages,
    Params,
    ParsedPrompt,
    RenderedPrompt,
    is_conversation,
    parse_prompts,
)
from ..requests.request import DoorProtocol, Notify, RequestT
from .transport import Transport

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

    @property
    def sees(self) -> bool:
        """Whether requests may bring pictures, once it is ready."""
        return self.plan is not None and self.plan.media is not None

    def window(self, prompts: Iterable[Any], params: Params, notify: Notify, *, ordered: bool) -> "Window[RequestT]":
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
        if is_conversation(prompt):
            [prompt] = self.render_batch([prompt], tools=tools, template_options=template_options)
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


# Prompts tokenized and sent together: large enough to amortize, small enough that the engine starts at once.
_GROUP = 128
# Bytes of pictures, as the engine holds them, of all requests in a window.
_MOST_MEDIA_BYTES = 256 << 20


class Window(Generic[RequestT]):
    """Many requests, of which so many are submitted; each leaves when its output is handed on.

    `fill`, `finish` what notified, hand on what is `ready`; `abandon` at the end, however it comes. However long the
    input, only so many requests are in memory; in input order, those that wait for one in front of them count too. The
    blocking and the asynchronous calls share it, and differ in how they wait.

    What ends the tree is raised by `ready`, after everything that had finished before it was handed on.
    """

    def __init__(
        self,
        transport: Transport[RequestT],
        door: DoorProtocol[RequestT],
        prompts: Iterator[ParsedPrompt],
        notify: Notify,
        size: int,
        *,
        ordered: bool,
    ) -> None:
        self.transport = transport
        self.door = door
        self.prompts = prompts
        self.size = size
        self.ordered = ordered
        self.running: dict[int, RequestT] = {}
        self._done: dict[int, RequestT] = {}  # by position
        self._following = 0  # the position to hand on next
        self._positions = itertools.count()
        self._has_more = True
        self._error: PenstockError | None = None
        self._notify_owner = notify
        self._media_bytes = 0  # of those that run

    @property
    def is_over(self) -> bool:
        return not (self._has_more or self.running or self._done or self._error)

    def fill(self) -> None:
        """Admit and submit groups until the window is full; small gaps are left until a group fits."""
        try:
            self._fill()
        except PenstockError as error:
            self._error = error

    def _fill(self) -> None:
        while self._has_more and self._error is None and (room := self.size - len(self.running) - len(self._done)) > 0:
            if (room < min(_GROUP, self.size // 4) or self._media_bytes >= _MOST_MEDIA_BYTES) and self.running:
                return
            group = list(_until_media(itertools.islice(self.prompts, min(_GROUP, room))))
            self._has_more = bool(group)
            self._submit(self.door.admit(group, self._notify))

    def _submit(self, admitted: list[RequestT]) -> None:
        good: list[RequestT] = []
        for request in admitted:
            request.position = next(self._positions)
            if request.is_finished:  # refused at the door
                self._done[request.position] = request
            else:
                self.running[request.request_id] = request
                self._media_bytes += request.media_bytes
                good.append(request)
        if good:
            self.transport.submit(good)

    def _notify(self, request: RequestT) -> None:
        if request.is_finished or request.error is not None:
            self._notify_owner(request)

    def finish(self, request: RequestT) -> None:
        del self.running[request.request_id]
        self._media_bytes -= request.media_bytes
        if request.error is None:
            self._done[request.position] = request
        elif self._error is None:
            self._error = same_error(request.error)

    def ready(self) -> Iterator[tuple[int, RequestOutput]]:
        """Positions in the input and outputs that may be handed on now."""
        if not self.ordered:
            while self._done:
                position = next(iter(self._done))
                yield position, self._done.pop(position).take()
        while self._following in self._done:
            yield self._following, self._done.pop(self._following).take()
            self._following += 1
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        self.transport.abort(self.running.values())


def _until_media(prompts: Iterator[ParsedPrompt]) -> Iterator[ParsedPrompt]:
    """The next prompts, up to the first that brings pictures."""
    for prompt in prompts:
        yield prompt
        if prompt.has_media:
            return


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
