"""A model opened for use: what `LLM` and `AsyncLLM` need of one, wherever its process tree belongs.

A private tree gives it as `Session`, the daemon as `AttachedSession`; `open_model` chooses, and imports only what it
chose: an attached script needs no tokenizer, no template engine and no ZeroMQ, and answers that much sooner.
Knows nothing of how a caller waits.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.config import EngineConfig
from ...protocol.descriptors import said_in_words
from ...protocol.messages import MemoryPlan
from ...protocol.outputs import RequestOutput
from ...protocol.sampling import SamplingParams
from ...protocol.stats import Stats
from ..console.standard_error import fill_closed_descriptors
from ..requests.prompts import Asked, Messages, Params

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


class Request(Protocol):
    """One request on its way."""

    request_id: int
    position: int  # in the caller's input
    is_finished: bool
    error: BaseException | None  # what ended it from without


Notify = Callable[[Any], None]  # called with a Request by a receiving thread; must not block


def notify(request: Any) -> None:
    """Tell a request's owner; one who can't be told any more doesn't keep others from being told."""
    try:
        request.notify(request)
    except Exception:
        _log.exception("Nobody could be told of request %s", request.request_id)


class Door(Protocol):
    """Where what callers give becomes requests."""

    defaults: SamplingParams

    def asked(self, prompts: Iterable[Any], params: Params) -> Iterator[Asked]: ...
    def admit(self, asked: Sequence[Asked], notify: Notify) -> list[Any]: ...


class Way(Protocol):
    """The way to the engine, and back to the requests."""

    @property
    def state(self) -> str: ...
    def check(self) -> None: ...
    def submit(self, requests: list[Any]) -> None: ...
    def abort(self, requests: Iterable[Any]) -> None: ...
    def cancel(self, requests: Iterable[Any]) -> None: ...
    def find(self, request_id: int) -> Any | None: ...
    def stats(self) -> Stats: ...
    def close(self) -> None: ...


class Loras(Protocol):
    def load(self, name: str, path: str | os.PathLike[str]) -> None: ...
    def unload(self, name: str) -> None: ...
    def names(self) -> list[str]: ...


class Opened(Protocol):
    config: EngineConfig
    is_quiet: bool
    plan: MemoryPlan | None  # once it is ready
    daemon: str | None  # where the one listens that holds it
    client: Way
    door: Door  # once it is ready
    adapters: Loras

    @property
    def tokenizer(self) -> "Tokenizer": ...
    def wait_until_ready(self) -> None: ...
    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str: ...
    def rendered(self, conversations: Iterable[Messages], **options: Any) -> list[Any]: ...
    def admit_streamed(
        self,
        prompt: Any,
        params: SamplingParams | None,
        notify: Notify,
        tools: Sequence[Any] | None,
        template_options: Mapping[str, Any] | None,
    ) -> Any: ...
    def take(self, request: Any) -> RequestOutput: ...
    def news(self, request: Any) -> RequestOutput | None: ...


def open_model(model: str | os.PathLike[str], options: dict[str, Any]) -> Opened:
    """The daemon's, where `connect` says so and it has that model; else a private tree, which starts."""
    fill_closed_descriptors()
    with said_in_words(f"{model!s} could not be opened"):
        if options.get("connect", "never") not in (None, "never"):
            from .attached import attach

            if (attached := attach(model, options)) is not None:
                return attached
        from .session import Session

        return Session.started(model, options)
