"""The models of an `Engine` by their names, and how they share the machine.

It knows nothing of the `Engine` itself, so that this can be collected, and closes all when that happens.
"""

import os
import threading
from dataclasses import replace
from typing import Any

from ...protocol.errors import ConfigError, OutOfMemoryError, PenstockError
from ...protocol.fields.rules import shown
from ...protocol.files.sizes import size
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ..console import logs
from ..models.model_files import find_model
from .configuration.model_config import AsModelConfig, checked_config, engine_options, model_folder, say_notices
from .installed_model import InstalledModel, ModelState
from .loaders.loader import context_of, scaled_context
from .status import AsStatus, StatusError, invalid_call, shutting_down, wrong_argument


class EngineState:
    def __init__(self) -> None:
        self.models: dict[str, InstalledModel] = {}
        self.is_closed = False
        self._process = os.getpid()
        self._lock = threading.RLock()  # the collector may come while its thread holds it
        self._install = threading.Lock()

    def find(self, name: Any) -> InstalledModel:
        self._require_own_process()
        if not isinstance(name, str):
            raise wrong_argument(f"A model is named by text, not by {type(name).__name__}.")
        found = self.models.get(name)
        if found is None:
            names = ", ".join(map(shown, list(self.models))) or "none"
            raise invalid_call(f"No model {shown(name)} was installed; there are {names}.")
        return found

    def install(self, config: Any) -> None:
        """A released model may be installed anew."""
        if not isinstance(config, AsModelConfig):
            raise wrong_argument(f"A model is installed by an AsModelConfig, not by {type(config).__name__}.")
        if not isinstance(config.model_name, str) or not isinstance(config.model_path, (str, os.PathLike)):
            raise wrong_argument("model_name must be text, and where the model lies text or a path.")
        if not config.model_name or not str(config.model_path):
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
        self._require_own_process()
        if self.is_closed:
            raise shutting_down()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise invalid_call("This engine belongs to the process that this one was forked from. Make a new Engine.")

    def start(self, name: Any) -> None:
        model = self.find(name)
        self.require_open()
        try:
            model.start(self._threads(model))
        except OutOfMemoryError as error:
            sentence = self._what_would_have_to_stop(model, error)
            raise StatusError(AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, sentence) from error
        self._show_shares(model)

    def _threads(self, model: InstalledModel) -> int | None:
        """An equal share of the cores for each model that is installed; None: all are this model's."""
        installed = [each for each in list(self.models.values()) if each.state is not ModelState.Released]
        return max(_ranks(model), len(os.sched_getaffinity(0)) // len(installed)) if len(installed) > 1 else None

    def _running(self) -> list[tuple[InstalledModel, MemoryPlan]]:
        found = [(model, model.session) for model in list(self.models.values()) if model.state is ModelState.Running]
        return [(model, session.plan) for model, session in found if session is not None and session.plan is not None]

    def _what_would_have_to_stop(self, model: InstalledModel, error: OutOfMemoryError) -> str:
        beside = [(other, plan) for other, plan in self._running() if _may_share(model, plan)]
        running = sorted(beside, key=lambda each: -_planned_bytes(*each))
        if not running:
            return str(error)
        names = ", ".join(f"{other.name} ({size(_planned_bytes(other, plan))})" for other, plan in running)
        return f"{model.name} does not fit beside {names}: {error} Stop one or more of these, the largest first."

    def _show_shares(self, model: InstalledModel) -> None:
        """Print each running model's share of the machine, once there are several."""
        running = self._running()
        if len(running) > 1:
            is_quiet = logs.is_quiet(bool(model.options.get("quiet")))
            logs.say("\n".join(["models of this engine", *_rows(running)]), quiet=is_quiet)

    def close(self) -> None:
        """Release all models, and let their requests pass on their output; from any thread, any number of times."""
        first_error: BaseException | None = None
        models = self._begin_end()
        for model in models:
            try:
                model.end()
            except BaseException as error:  # Ctrl-C, say: the other models are ended all the same
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def close_at_once(self) -> None:
        """For the collector of garbage, which calls this from any thread in the middle of anything."""
        for model in self._begin_end():
            model.end_at_once()

    def _begin_end(self) -> list[InstalledModel]:
        if os.getpid() != self._process:
            return []
        with self._lock:
            self.is_closed = True
            models = list(self.models.values())
        for model in models:
            model.prepare_end()
        return models


def _installed(config: AsModelConfig) -> InstalledModel:
    """Raises `PenstockError` where that model, or one of its settings, can't work."""
    config = checked_config(config)
    if config.options.get("connect") not in (None, "never"):
        raise ConfigError("connect: a model of an Engine has processes of its own; leave it out.")
    try:
        source = model_folder(config.model_path)
        found = find_model(source, revision=config.revision, is_quiet=True)
        context = scaled_context(context_of(found.folder), config.options.get("rope_scaling"))
        options = {name: value for name, value in engine_options(config, context).items() if value is not None}
        EngineConfig.from_options(source, **options)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, PenstockError) else ConfigError(f"{config.model_name}: {error}") from error
    say_notices(config, context)
    return InstalledModel(config, source, options)


def _ranks(model: InstalledModel) -> int:
    return model.options.get("tensor_parallel_size") or 1


def _may_share(model: InstalledModel, plan: MemoryPlan) -> bool:
    """Whether the model would take memory from where that plan has its own."""
    return model.options.get("device", "auto") in ("auto", plan.device.split(":")[0])


def _planned_bytes(model: InstalledModel, plan: MemoryPlan) -> int:
    blocks = plan.kv_bytes
    return _ranks(model) * (plan.weight_bytes + plan.activation_bytes + plan.adapter_bytes + blocks)


def _rows(running: list[tuple[InstalledModel, MemoryPlan]]) -> list[str]:
    width = max(len(model.name) for model, _ in running)
    return [
        f"  {model.name:<{width}}  {_threads_of(model)} threads, {size(plan.weight_bytes)} weights in {plan.dtype}, "
        f"{size(plan.kv_bytes)} KV cache, {size(_planned_bytes(model, plan))} in all"
        for model, plan in running
    ]


def _threads_of(model: InstalledModel) -> int:
    session = model.session
    return (session.config.num_threads if session is not None else None) or len(os.sched_getaffinity(0))
