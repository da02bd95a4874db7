"""The models of an `Engine` by their names, and how they share the machine.

It knows nothing of the `Engine` itself, so that this can be collected, and closes all when that happens.
"""

import os
import threading
from dataclasses import replace
from typing import Any

from ...protocol.errors import ConfigError, OutOfMemoryError, PenstockError
from ...protocol.files.sizes import size
from ...protocol.messages import MemoryPlan
from ...protocol.options.config import EngineConfig
from ..console import logs
from ..models.model_files import find_model
from .installed_model import InstalledModel, ModelState
from .loader import context_of
from .model_config import AsModelConfig, engine_options, model_folder, say_notices
from .status import AsStatus, StatusError, denied, invalid_call, wrong_argument


class EngineState:
    def __init__(self) -> None:
        self.models: dict[str, InstalledModel] = {}
        self.is_closed = False
        self._lock = threading.Lock()
        self._install = threading.Lock()

    def find(self, name: Any) -> InstalledModel:
        if not isinstance(name, str):
            raise wrong_argument(f"A model is named by text, not by {type(name).__name__}.")
        found = self.models.get(name)
        if found is None:
            names = ", ".join(map(repr, self.models)) or "none"
            raise invalid_call(f"No model {name!r} was installed; there are {names}.")
        return found

    def install(self, config: Any) -> None:
        """A released model may be installed anew."""
        if not isinstance(config, AsModelConfig):
            raise wrong_argument(f"A model is installed by an AsModelConfig, not by {type(config).__name__}.")
        if not config.model_name or not config.model_path:
            raise wrong_argument("The configuration needs a model_name and where the model lies.")
        with self._install:  # two installations of a name: one of them finds the other's
            self._require_free(config.model_name)
            model = _installed(replace(config))
            with self._lock:
                self.require_open()
                self.models[model.name] = model

    def _require_free(self, name: str) -> None:
        self.require_open()
        known = self.models.get(name)
        if known is not None and known.state is not ModelState.Released:
            raise invalid_call(f"A model {name!r} is installed already; its state is {known.state}.")

    def require_open(self) -> None:
        if self.is_closed:
            raise denied("The engine is shutting down.")

    def start(self, name: Any) -> None:
        model = self.find(name)
        try:
            model.start(self._threads(model))
        except OutOfMemoryError as error:
            sentence = self._what_would_have_to_stop(model, error)
            raise StatusError(AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, sentence) from error
        self._show_shares(model)

    def _threads(self, model: InstalledModel) -> int | None:
        """An equal share of the cores for each model that is installed; None: all are this model's."""
        installed = [each for each in list(self.models.values()) if each.state is not ModelState.Released]
        ranks = model.options["tensor_parallel_size"]
        return max(ranks, len(os.sched_getaffinity(0)) // len(installed)) if len(installed) > 1 else None

    def _running(self) -> list[tuple[InstalledModel, MemoryPlan]]:
        found = [(model, model.session) for model in list(self.models.values()) if model.state is ModelState.Running]
        return [(model, session.plan) for model, session in found if session is not None and session.plan is not None]

    def _what_would_have_to_stop(self, model: InstalledModel, error: OutOfMemoryError) -> str:
        running = sorted(self._running(), key=lambda each: -_planned_bytes(*each))
        if not running:
            return str(error)
        beside = ", ".join(f"{other.name} ({size(_planned_bytes(other, plan))})" for other, plan in running)
        return f"{model.name} does not fit beside {beside}: {error} Stop one or more of these, the largest first."

    def _show_shares(self, model: InstalledModel) -> None:
        """What each running model has of the machine, once there are several."""
        running = self._running()
        if len(running) > 1:
            is_quiet = logs.is_quiet(bool(model.options.get("quiet")))
            logs.say("\n".join(["models of this engine", *_rows(running)]), quiet=is_quiet)

    def close(self) -> None:
        """Release all models; safe to call twice, from any thread."""
        with self._lock:
            self.is_closed = True
            models = list(self.models.values())
        for model in models:
            model.abandon()


def _installed(config: AsModelConfig) -> InstalledModel:
    """Raises `PenstockError` where that model, or one of its settings, can't work."""
    source = model_folder(config.model_path)
    files = find_model(source, revision=config.revision, is_quiet=True)
    context = context_of(files.folder)
    try:
        options = {name: value for name, value in engine_options(config, context).items() if value is not None}
        EngineConfig.from_options(source, **options)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, PenstockError) else ConfigError(f"{config.model_name}: {error}") from error
    say_notices(config, context)
    return InstalledModel(config, source, options)


def _planned_bytes(model: InstalledModel, plan: MemoryPlan) -> int:
    ranks: int = model.options["tensor_parallel_size"]
    blocks = plan.num_blocks * plan.block_bytes
    return ranks * (plan.weight_bytes + plan.activation_bytes + plan.adapter_bytes + blocks)


def _rows(running: list[tuple[InstalledModel, MemoryPlan]]) -> list[str]:
    width = max(len(model.name) for model, _ in running)
    return [
        f"  {model.name:<{width}}  {_threads_of(model)} threads, {size(plan.weight_bytes)} weights in {plan.dtype}, "
        f"{size(plan.num_blocks * plan.block_bytes)} KV cache, {size(_planned_bytes(model, plan))} in all"
        for model, plan in running
    ]


def _threads_of(model: InstalledModel) -> int:
    session = model.session
    return (session.config.num_threads if session is not None else None) or len(os.sched_getaffinity(0))
