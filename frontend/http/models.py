"""The interface between the server and the models behind it.

`Models` has two implementations: the daemon's models, which come and go (`ServedModels` in `serve.py`), and the one
model of a user's own program (`one_model.py`). Both lease `LoadedModel`s.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...protocol.errors import ModelNotFoundError
from ...protocol.fields.suggestion import suggestion
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.stats import Stats
from ..session.private import PrivateSession
from .loaded_model import LoadedModel


class ModelNotServedError(ModelNotFoundError):
    """No model of that name is served; the message contains no path."""


def unknown_model(name: str, names: Sequence[str]) -> str:
    return f"There is no model {name!r} here; there is {', '.join(names) or 'none'}.{suggestion(name, names)}"


@dataclass(frozen=True, slots=True)
class ServedName:
    """One name that a request may give as its model."""

    name: str
    created: int  # Unix seconds
    max_model_len: int | None = None  # None: not loaded, so nobody knows yet
    parent: str | None = None  # of an adapter: its model
    is_loaded: bool = True
    session: PrivateSession | None = None  # None: not loaded

    @property
    def media_kinds(self) -> Sequence[str] | None:
        """The media that it accepts; None: not loaded, so nobody knows yet."""
        return None if self.session is None else self.session.media_kinds

    @property
    def defaults(self) -> SamplingParams | None:
        """The sampling of a request without parameters; None: not loaded, or it writes no text."""
        return None if self.session is None or self.session.pooled is not None else self.session.door.defaults


class ModelState(NamedTuple):
    state: str  # ready, loading, restarting, failed, unloading, or unloaded: loaded on the next request
    reason: str = ""  # why it has failed, or is restarting
    last_error: str = ""  # the same, kept after it has recovered
    last_error_time: float = 0.0  # Unix seconds


class Models(Protocol):
    def lease(self, name: str | None) -> AbstractAsyncContextManager[LoadedModel]:
        """The model of that name (None: the only or first one), loaded if necessary; it stays loaded while the context
        is open.

        Raises `ModelNotServedError` for an unknown name and another `PenstockError` if it can't be loaded.
        """

    @property
    def is_short_of_memory(self) -> bool:
        """Whether a model waits to be loaded until others aren't used any more."""

    async def listing(self) -> list[ServedName]: ...

    def unload(self, name: str) -> None:
        """Begin to end the processes of the model of that name, or of that adapter's model.

        Raises `ModelNotServedError` for an unknown name and `RequestError` if it has to stay.
        """

    async def stats(self) -> dict[str, Stats]:
        """Statistics of each loaded model whose engine answers; raises the error of a model that has died."""

    def states(self) -> dict[str, ModelState]: ...

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        """The processes of each loaded model that don't answer. Those that have ended aren't included: `states`
        shows them."""
