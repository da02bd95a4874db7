"""A model opened for use: what `LLM` and `AsyncLLM` need of one, wherever its process tree belongs.

`PrivateSession` has a tree of its own, `AttachedSession` is a client of the daemon. A session submits requests by its
transport and returns a `Window` of many or a `Stream` of one; its callers do the waiting.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ...protocol.errors import RequestError, same_error
from ...protocol.messages import MemoryPlan
from ...protocol.options.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ..requests.prompts import Conversation, Messages, Params, Rendered, is_conversation
from ..requests.request import DoorProtocol, Notify, RequestT
from .transport import Transport
from .window import Window

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer

Output = TypeVar("Output")


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
    def rendered(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Sequence[Rendered | RequestError | Conversation]:
        """One prompt for each conversation, as `window` takes them."""

    @abstractmethod
    def take(self, request: RequestT) -> RequestOutput:
        """The output of a request since the last `take`."""

    @abstractmethod
    def is_fresh(self, request: RequestT) -> bool:
        """Whether anything has come since."""

    def news(self, request: RequestT, take: Callable[[RequestT], Output]) -> Output | None:
        """What `take` finds that has come since the last look; raises what ended the request once there is no more."""
        # Looked at first: all that came before an error is there when it is.
        error = request.error
        if self.is_fresh(request):
            return take(request)
        if error is not None:
            raise same_error(error)
        return None

    def window(self, prompts: Iterable[Any], params: Params, notify: Notify, *, ordered: bool) -> Window[RequestT]:
        """A window of many requests; `notify` is called for each that has ended."""
        self.transport.check()
        asked = self.door.parse(prompts, params)
        return Window(self.transport, self.door, asked, notify, self.config.window, self.take, ordered=ordered)

    def stream(
        self,
        prompt: Any,
        params: SamplingParams | None,
        notify: Notify,
        tools: Sequence[Any] | None,
        template_options: Mapping[str, Any] | None,
    ) -> "Stream[RequestT]":
        """One prompt or conversation whose answer is wanted as it comes; `notify` hears of each piece."""
        self.transport.check()
        if is_conversation(prompt):
            [prompt] = self.rendered([prompt], tools=tools, template_options=template_options)
        [request] = self.door.admit(list(self.door.parse([prompt], params)), notify, is_streamed=True)
        return Stream(self, request)

    def cancel(self, request_id: int) -> None:
        """End a running request, which keeps what it has."""
        if (request := self.transport.find(request_id)) is not None:
            self.transport.cancel([request])


class Stream(Generic[RequestT]):
    """One request whose answer is read as it comes; leaving its `with` aborts it.

    Until it `is_over`, wait until its owner was told something if it `has_to_wait`, then look at its `news`.
    """

    def __init__(self, session: Session[RequestT], request: RequestT) -> None:
        self.has_to_wait = not request.is_finished  # else it was refused at the door
        self.is_over = False
        self._session = session
        self._request = request

    def __enter__(self) -> "Stream[RequestT]":
        if self.has_to_wait:
            self._session.transport.submit([self._request])
        return self

    def news(self) -> RequestOutput | None:
        """What has come since the last look; raises what ended the request from without."""
        output = self._session.news(self._request, self._session.take)
        self.is_over = output is not None and output.finished
        return output

    def __exit__(self, *exception: object) -> None:
        if self.has_to_wait:
            self._session.transport.abort([self._request])
