"""What the server needs of the models behind it.

`loaded_model.py` is a model over an opened session; the daemon brings several models that come and go
(`ServedModels` in `serve.py`), and a program of one's own brings one (`one_model.py`).
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...protocol.errors import ModelNotFoundError, PenstockError
from ...protocol.sampling import SamplingParams
from ...protocol.stats import Stats
from ...protocol.suggestion import suggestion
from ..requests.budget import Charge
from ..requests.pending_request import PackedOutput, PendingRequest
from ..requests.prompts import Rendered
from ..session.model_threads import ModelThreads
from ..session.tree.transport import TreeTransport
from ..text.tokenizer import Tokenizer


class UnknownModel(ModelNotFoundError):
    """No model of that name is served; its words hold no path."""


def unknown_model(name: str, names: Sequence[str]) -> str:
    return f"There is no model {name!r} here; there is {', '.join(names) or 'none'}.{suggestion(name, names)}"


@dataclass(frozen=True, slots=True)
class Card:
    """One name that a request may give as its model."""

    name: str
    created: int  # Unix seconds
    max_model_len: int | None = None  # None: not loaded, so nobody knows yet
    parent: str | None = None  # of an adapter: the model that it belongs to
    is_loaded: bool = True


class ModelState(NamedTuple):
    state: str  # ready, loading, restarting, failed, unloading, or unloaded: loaded when it is asked
    reason: str = ""  # why it has failed, or is started again
    last_error: str = ""  # the same, also after it has come back
    last_error_time: float = 0.0  # Unix seconds


@dataclass(slots=True, eq=False)
class Submitted:
    """A prompt that has gone to an engine, and the way to that."""

    request: PendingRequest
    transport: TreeTransport
    # Of one that was left before its end: the engine's answer how many tokens each of its samples had by then. Those
    # of a whole answer come to this process at its end alone.
    last_stats: Future[Stats] | None = None

    def leave(self) -> None:
        """Nobody waits for it any more: it is ended, if it still runs."""
        if not (self.request.is_finished or self.request.prompt.is_streamed):
            with suppress(PenstockError):  # the engine has died, or is closed
                self.last_stats = self.transport.ask_stats(self.request.sequence_ids)
        self.transport.abort([self.request])


class Model(Protocol):
    """A loaded model, as long as it is leased."""

    name: str

    @property
    def max_model_len(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def defaults(self) -> SamplingParams:
        """What the model's own files ask for."""

    @property
    def threads(self) -> ModelThreads: ...

    def adapter(self, asked: str | None) -> str | None:
        """The one that a request uses: the one it asks for, else the one whose name it gave as the model's."""

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        """In one of the threads for templates: it may take as long as a process apart may."""

    def stream(
        self,
        prompt: Rendered | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[Submitted], None],
    ) -> AsyncGenerator[PackedOutput]:
        """What is new, as it comes; only the whole, at the end, unless `is_streamed`. Closing it aborts the request.

        `on_submit` is told when the engine gets it. All that is held for it is charged, and given back by whoever takes
        it. The clients that are charged take turns at the engine.
        """


class Models(Protocol):
    def lease(self, name: str | None) -> AbstractAsyncContextManager[Model]:
        """The model of that name (None: the only or first one), loaded if need be; it stays while the context is open.

        Raises `UnknownModel` for an unknown name and another `PenstockError` where it can't be loaded.
        """

    async def listing(self) -> list[Card]: ...

    async def stats(self) -> dict[str, Stats]:
        """Of each loaded model whose engine answers; raises what has ended one."""

    def states(self) -> dict[str, ModelState]: ...

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        """Of each loaded model the processes that don't answer now, each asked itself; none of those that have ended,
        which `states` says by then."""
