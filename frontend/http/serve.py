"""Starts the HTTP server for the daemon, and adapts the daemon's models to the server's `Models` interface."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import ConfigError, PenstockError, RequestError
from ...protocol.stats import Stats
from ..console import logs
from ..requests.budget import Budget
from .loaded_model import LoadedModel
from .models import ModelNotServedError, ModelState, ServedName, unknown_model
from .options import HttpOptions

if TYPE_CHECKING:
    from ...protocol.attach import ModelStatus
    from ..daemon.models import DaemonModels
    from .batches.service import Batches
    from .connections.server import HttpServer


async def start_http(
    models: "DaemonModels",
    options: HttpOptions,
    budget: Budget,
    older: "HttpServer | None" = None,
    say: Callable[[str], None] | None = None,
    stored: "Batches | None" = None,
) -> "HttpServer":
    """Start the server; returns when it accepts connections, or raises `ConfigError` if it can't.

    It replaces an `older` server, which gets no new connections from then on and which the caller closes.
    """
    try:
        from .connections.server import HttpServer
    except ImportError as error:
        raise ConfigError(
            f"HTTP needs further packages ({error.name} is missing): pip install 'penstock[http]'; or give --no-http."
        ) from error
    served = ServedModels(models, with_added=options.http_added)
    server = HttpServer(served, options, budget, say, stored)
    await server.start(older)
    if stored is not None:
        stored.change(served, options)
    return server


async def start_batches(
    models: "DaemonModels", options: HttpOptions, address: Path, on_change: Callable[[], None]
) -> "Batches":
    """Open the files and batches of the daemon at that address, and go on with those that haven't ended."""
    from .batches.service import Batches

    served = ServedModels(models, with_added=options.http_added)
    batches = Batches(served, options, files_folder(options, address), on_change)
    await batches.start()
    return batches


def files_folder(options: HttpOptions, address: Path) -> Path:
    """A folder of the daemon's own, in the one that the option names or among the user's state."""
    if options.files_folder is not None:
        return Path(os.path.expanduser(options.files_folder)).absolute() / "penstock-files"
    return logs.state_folder() / "files" / f"daemon-{logs.digest_of(address)}"


class ServedModels:
    """The daemon's models that its owner named. Listing them takes no lease.

    With `with_added`, also models that clients have added, and the adapters that clients have loaded, each under a name
    of its own.
    """

    def __init__(self, models: "DaemonModels", *, with_added: bool) -> None:
        self._models = models
        self._with_added = with_added

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[LoadedModel]:
        names = self._names()
        if name is None and not names:
            raise ModelNotServedError("No model is served here.")
        own, adapter = (names[0] if name is None else name), None
        if own not in names:
            own, adapter = self._owner_of(own), own
        async with self._models.lease(own) as session:
            yield LoadedModel(session, own, adapter, serves_adapters=self._with_added)

    @property
    def is_short_of_memory(self) -> bool:
        return self._models.is_short_of_memory

    async def listing(self) -> list[ServedName]:
        cards = []
        for status in self._served():
            length = status.plan.max_model_len if status.plan is not None else None
            card = ServedName(
                status.name,
                int(status.since),
                length,
                is_loaded=status.state == "ready",
                session=self._models.loaded_session(status.name),
            )
            cards.append(card)
            cards += [replace(card, name=adapter, parent=card.name) for adapter in self._adapters(card.name)]
        return cards

    def unload(self, name: str) -> None:
        own = name if name in self._names() else self._owner_of(name)
        try:
            self._models.unload(own)
        except PenstockError as error:  # somebody uses it, or it is loading
            raise RequestError(str(error)) from error

    async def stats(self) -> dict[str, Stats]:
        names = self._ready()
        found = await asyncio.gather(*map(self._models.stats, names))
        return {name: stats for name, stats in zip(names, found) if stats is not None}

    def states(self) -> dict[str, ModelState]:
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
        names = self._names()
        for name in names:
            if adapter in self._adapters(name):
                return name
        raise ModelNotServedError(unknown_model(adapter, names))
