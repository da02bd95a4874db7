"""The daemon's models by name, their states, and who may use which.

`loading.py` loads one, and unloads another if it doesn't fit. All this lives on the daemon's event loop.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from ...protocol.attach import ModelStatus
from ...protocol.errors import ClosedError, PenstockError, RequestError
from ...protocol.fields.suggestion import suggestion
from ...protocol.options.config import EngineConfig
from ...protocol.stats import Stats
from ..models.model_names import name_of
from ..session.private import PrivateSession
from .loading import Loading
from .model import DaemonModel
from .settings import DaemonSettings, ModelSettings, added_model


class UnknownModelError(RequestError):
    """No model of that name is served."""


class DaemonModels:
    def __init__(self, settings: DaemonSettings) -> None:
        self.settings = settings
        self.on_change: Callable[[], None] = lambda: None
        self._loading = Loading(settings, lambda: self._every)
        self._added: dict[str, ModelSettings] = {}  # the ones in `_models` that clients added; a reload keeps them
        self._models = {name: self._made(model) for name, model in settings.models.items()}
        self._leaving: list[DaemonModel] = []  # no longer served under their name, but still used

    @property
    def is_draining(self) -> bool:
        return self._loading.is_draining

    @property
    def is_short_of_memory(self) -> bool:
        """Whether a load waits until models in use are given back."""
        return self._loading.num_waiting > 0

    def drain(self) -> None:
        """Load and lease no more models: the daemon is shutting down."""
        self._loading.is_draining = True

    def _made(self, settings: ModelSettings) -> DaemonModel:
        model = DaemonModel(settings, self._loading.open)
        model.on_change = self._changed
        return model

    def _changed(self) -> None:
        self._loading.note_release()
        self._leaving = [model for model in self._leaving if model.is_needed]
        self._forget_added()
        self.on_change()

    # --- using -----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self._models)

    def is_named(self, name: str) -> bool:
        """Whether the daemon's owner configured it, rather than a client added it."""
        return name in self.settings.models

    def find(self, name: str, path: str = "") -> DaemonModel:
        """The model with that name, or one made from that path or hub id."""
        if self.is_draining:
            raise ClosedError("The daemon is shutting down.")
        # A client with a folder of that name means its own folder, not a model that another client has added.
        if name in self._models and (self.is_named(name) or path in ("", name)):
            return self._models[name]
        made = [model for model in self._models.values() if model.settings.model in (name, path)]
        if made:
            return min(made, key=lambda model: not self.is_named(model.name))
        served, hint = ", ".join(self._models) or "none", suggestion(name, self._models)
        raise UnknownModelError(f"The daemon serves no model {name!r}; it serves {served}.{hint}")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[PrivateSession]:
        """The model's session, loaded if necessary, which is kept while the context is open."""
        model = self.find(name)
        model.lease()
        try:
            yield await model.ready()
        finally:
            model.release()

    def find_or_add(self, name: str, path: str, options: dict[str, Any]) -> DaemonModel:
        """The owner's model of that name or path, if there is one; else a model that is added for this client.

        Only clients that give the same options share an added model, so one client's wrong options don't hurt others.
        """
        with suppress(UnknownModelError):
            model = self.find(name, path)
            if self.is_named(model.name) or model.settings.model not in (name, path):
                return model
        return self.add(path, options)

    def add(self, model: str, options: dict[str, Any]) -> DaemonModel:
        """Add a client's model, a path or a hub id, under a name that doesn't reveal the path.

        It is forgotten once nobody uses it and it has no processes.
        """
        own = name_of(model)
        numbered = (f"{own}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([own], numbered) if name not in self._models)
        settings = added_model(name, model, options, self.settings.keep_alive)
        for known in self._added.values():
            if _is_same(known.config, settings.config):
                return self._models[known.name]
        self._added[name] = settings
        self._models[name] = self._made(settings)
        return self._models[name]

    def _forget_added(self) -> None:
        """Forget added models that nobody uses and that have no processes; they can be added with new options then."""
        for name in [name for name in self._added if not self._models[name].is_needed]:
            del self._added[name], self._models[name]

    def unload(self, name: str) -> str:
        """Begin to end the processes of a model that nobody uses, which is loaded again when it is next used; returns
        its own name."""
        model = self.find(name)
        if model.leases:
            users = "1 client uses" if model.leases == 1 else f"{model.leases:,} clients use"
            raise PenstockError(f"{users} {model.name}, so it stays loaded; `penstock ps` shows when nobody does.")
        if model.session is None and model.is_held and model.state != "unloading":
            raise PenstockError(f"{model.name} is {model.state}; unload it when it is ready.")
        model.unload()
        return model.name

    async def stats(self, name: str) -> Stats | None:
        """The engine's statistics; None while the model isn't loaded."""
        return await self._models[name].stats() if name in self._models else None

    async def silent(self, name: str, seconds: float) -> list[str]:
        """Its processes that don't answer. Those that have ended aren't included: its state shows them."""
        return await self._models[name].silent(seconds) if name in self._models else []

    def listing(self) -> list[ModelStatus]:
        """The state of each model that is served."""
        return [model.status() for model in self._models.values()]

    async def figures(self) -> list[ModelStatus]:
        """The state of every model, also of those that are leaving, with their engines' statistics."""
        every = self._every
        stats = await asyncio.gather(*(model.stats() for model in every))
        return [msgspec.structs.replace(model.status(), stats=each) for model, each in zip(every, stats, strict=True)]

    def adapters(self, name: str) -> list[str]:
        """A served model's adapters, loaded or to be loaded with it."""
        return sorted(self._models[name].adapters)

    def loaded_session(self, name: str) -> PrivateSession | None:
        """The session of a served model; None if it isn't loaded."""
        session = self._models[name].session
        return None if session is None or session.plan is None else session

    @property
    def num_held(self) -> int:
        return sum(model.is_held for model in self._every)

    @property
    def _every(self) -> list[DaemonModel]:
        return [*self._models.values(), *self._leaving]

    def preload(self) -> None:
        """Start loading the models with `preload`."""
        for model in self._models.values():
            if model.settings.preload:
                asyncio.create_task(model.load_once()).add_done_callback(_forgotten)

    async def load_required(self) -> None:
        """Load the required models; raises if one of them can't be loaded, since the daemon then doesn't start."""
        required = [model for model in self._models.values() if model.settings.is_required]
        loads = [asyncio.create_task(self._load_required(model)) for model in required]
        try:
            for load in asyncio.as_completed(loads):
                await load
        finally:  # other loads go on or end with the daemon, and nobody waits for them
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)

    async def _load_required(self, model: DaemonModel) -> None:
        model.says_failures = False
        try:
            await model.load_once()
        except PenstockError as error:
            raise type(error)(f"{model.name} could not be loaded: {error}") from error
        finally:
            model.says_failures = True

    # --- changing and ending -----------------------------------------------------------------------------------------

    def reload(self, settings: DaemonSettings) -> list[str]:
        """Take over new settings; returns what changed. Models in use keep the old ones until nobody uses them."""
        self.settings = self._loading.settings = settings
        for name in self._added.keys() & settings.models.keys():
            del self._added[name]
        wanted = {**self._added, **settings.models}
        words = []
        for name in [name for name in self._models if name not in wanted]:
            self._retire(self._models.pop(name))
            words.append(f"{name} removed")
        for name, one in wanted.items():
            old = self._models.get(name)
            if old is None or old.settings.config != one.config:
                self._models[name] = self._made(one)
                if old is not None:
                    self._retire(old)
                words.append(f"{name} {'added' if old is None else 'changed'}")
            elif old.settings != one:
                old.settings = one
                old.settle()
                words.append(f"{name} adjusted")
        self.preload()
        return words

    def _retire(self, model: DaemonModel) -> None:
        model.is_stale = True
        self._leaving.append(model)
        model.settle()
        self._changed()

    async def end(self) -> None:
        """End every process of every model; loads in progress fail."""
        self._loading.end()
        await asyncio.gather(*(model.end() for model in self._every))


def _is_same(config: EngineConfig, other: EngineConfig) -> bool:
    """Whether two configurations agree. `watchdog_timeout` isn't compared: each client may wait as long as it likes."""
    return msgspec.structs.replace(config, watchdog_timeout=other.watchdog_timeout) == other


def _forgotten(waiting: "asyncio.Task[None]") -> None:
    """Retrieve the exception of a preload, for which nobody waits: the log and the model's state already show it."""
    if not waiting.cancelled():
        waiting.exception()
