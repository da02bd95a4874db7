"""HTTP for the daemon: its models as the server wants to see them, and the start of the server.

Knows nothing of endpoints; the daemon knows nothing of the server but its address and how to close it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...protocol.errors import ConfigError
from ...protocol.stats import Stats
from ..requests.budget import Budget
from .options import HttpOptions

if TYPE_CHECKING:
    from ...protocol.attach import ModelStatus
    from ..daemon.models import DaemonModels
    from .models import Card, Model, ModelState
    from .server import HttpServer


async def start_http(
    models: "DaemonModels",
    options: HttpOptions,
    budget: Budget,
    older: "HttpServer | None" = None,
    say: Callable[[str], None] | None = None,
) -> "HttpServer":
    """Returns when connections are taken; raises `ConfigError` where that can't be.

    In place of an older one, which hears of no new connections from then on and is the caller's to close.
    """
    try:
        from .server import HttpServer
    except ImportError as error:
        raise ConfigError(
            f"HTTP needs further packages ({error.name} is missing): pip install 'penstock[http]'; or give --no-http."
        ) from error
    server = HttpServer(ServedModels(models, with_added=options.http_added), options, budget, say)
    await server.start(older)
    return server


class ServedModels:
    """The daemon's models by their names, as far as its owner named them. Looking at them leases none.

    With those that clients have added, where the owner wants that; then adapters, all of which clients have loaded, are
    models of their own, too.
    """

    def __init__(self, models: "DaemonModels", *, with_added: bool) -> None:
        self._models = models
        self._with_added = with_added

    @asynccontextmanager
    async def lease(self, name: str | None) -> "AsyncIterator[Model]":
        from .loaded_model import LoadedModel
        from .models import UnknownModel

        names = self._names()
        if name is None and not names:
            raise UnknownModel("No model is served here.")
        own, adapter = (names[0] if name is None else name), None
        if own not in names:
            own, adapter = self._owner_of(own), own
        async with self._models.lease(own) as session:
            yield LoadedModel(session, own, adapter, serves_adapters=self._with_added)

    async def listing(self) -> "list[Card]":
        from .models import Card

        cards = []
        for status in self._served():
            length = status.plan.max_model_len if status.plan is not None else None
            card = Card(status.name, int(status.since), length, is_loaded=status.state == "ready")
            cards.append(card)
            for adapter in self._adapters(card.name):
                cards.append(Card(adapter, card.created, length, card.name, card.is_loaded))
        return cards

    async def stats(self) -> dict[str, Stats]:
        names = self._ready()
        found = await asyncio.gather(*map(self._models.stats, names))
        return {name: stats for name, stats in zip(names, found) if stats is not None}

    def states(self) -> "dict[str, ModelState]":
        from .models import ModelState

        return {
            status.name: ModelState(status.state, status.error, status.last_error, status.last_error_time)
            for status in self._served()
        }

    async def silent(self, seconds: float) -> dict[str, list[str]]:
        names = self._ready()
        found = await asyncio.gather(*(self._models.silent(name, seconds) for name in names))
        return dict(zip(names, found))

    def _ready(self) -> list[str]:
        return [status.name for status in self._served() if status.state == "ready"]

    def _names(self) -> list[str]:
        return [name for name in self._models.names() if self._with_added or self._models.is_named(name)]

    def _served(self) -> "list[ModelStatus]":
        names = self._names()
        return [status for status in self._models.listing() if status.name in names]

    def _adapters(self, name: str) -> list[str]:
        return self._models.adapters(name) if self._with_added else []

    def _owner_of(self, adapter: str) -> str:
        from .models import UnknownModel, unknown_model

        names = self._names()
        for name in names:
            if adapter in self._adapters(name):
                return name
        raise UnknownModel(unknown_model(adapter, names))
