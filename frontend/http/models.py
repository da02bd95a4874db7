"""The interface between the server and the models behind it.

`loaded_model.py` implements `Model` over an opened session. `Models` has two implementations: the daemon's models,
which come and go (`ServedModels` in `serve.py`), and the one model of a user's own program (`one_model.py`).
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...protocol.errors import ModelNotFoundError, PenstockError
from ...protocol.fields.suggestion import suggestion
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.stats import Stats
from ..requests.budget import Charge
from ..requests.pending_request import PackedOutput, PendingRequest
from ..requests.prompts import RenderedPrompt
from ..session.threads import ModelThreads
from ..session.tree.transport import TreeTransport
from ..text.tokenizer import Tokenizer


class ModelNotServedError(ModelNotFoundError):
    """No model of that name is served; the message holds no path."""


def unknown_model(name: str, names: Sequence[str]) -> str:
    return f"There is no model {name!r} here; there is {', '.join(names) or 'none'}.{suggestion(name, names)}"


@dataclass(frozen=True, slots=True)
class ServedName:
    """One name that a request may give as its model."""

    name: str
    created: int  # Unix seconds
    max_model_len: int | None = None  # None: not loaded, so nobody knows yet
    parent: str | None = None  # of an adapter: the model that it belongs to
    is_loaded: bool = True


class ModelState(NamedTuple):
    state: str  # ready, loading, restarting, failed, unloading, or unloaded: loaded on the next request
    reason: str = ""  # why it has failed, or is started again
    last_error: str = ""  # the same, kept after it has recovered
    last_error_time: float = 0.0  # Unix seconds


@dataclass(slots=True, eq=False)
class SubmittedPrompt:
    """A prompt that has been submitted to an engine, and the transport to that engine."""

    request: PendingRequest
    transport: TreeTransport
    # If it was left before its end: the engine's count of the tokens that each sample had by then. Without streaming,
    # tokens come to this process only at the end.
    last_stats: Future[Stats] | None = None

    def leave(self) -> None:
        """Nobody waits for it any more: abort it if it still runs."""
        if not (self.request.is_finished or self.request.prompt.is_streamed):
            with suppress(PenstockError):  # the engine has died, or is closed
                self.last_stats = self.transport.ask_stats(self.request.sequence_ids)
        self.transport.abort([self.request])


class Model(Protocol):
    """A loaded model, valid while it is leased."""

    name: str

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def defaults(self) -> SamplingParams:
        """Sampling parameters from the model's own files."""

    @property
    def threads(self) -> ModelThreads: ...

    def adapter(self, asked: str | None) -> str | None:
        """The adapter that a request uses: the one it asks for, else the one whose name it gave as the model's."""

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        """Render a conversation. Called in one of the threads for templates, since it waits for another process."""

    def stream(
        self,
        prompt: RenderedPrompt | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[SubmittedPrompt], None],
    ) -> AsyncGenerator[PackedOutput]:
        """The answer's news as they come; unless `is_streamed`, the whole at the end. Closing it aborts the request.

        `on_submit` is called when the request goes to the engine. News are charged to `charge`, and given back by
        whoever takes them. The charged clients take turns at the engine.
        """


class Models(Protocol):
    def lease(self, name: str | None) -> AbstractAsyncContextManager[Model]:
        """The model of that name (None: the only or first one), loaded if need be; it stays while the context is open.

        Raises `ModelNotServedError` for an unknown name and another `PenstockError` where it can't be loaded.
        """

    async def listing(self) -> list[ServedName]: ...

    async def stats(self) -> dict[str, Stats]:
        """Statistics of each loaded model whose engine answers; raises the error of a model that has died."""

    def states(self) -> dict[str, ModelState]: ...

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        """The processes of each loaded model that don't answer when asked. Those that have ended aren't among them:
        `states` shows that."""
