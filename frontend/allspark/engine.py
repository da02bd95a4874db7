"""`Engine`: several models by name, each started, stopped and asked by hand, as users of DashInfer do.

Every call answers with an `AsStatus`; a fault of an argument or a state raises nothing, and leaves a sentence in the
log and on the status. Only what users call stands here: `engine_state.py` has the models, `installed_model.py` one.
"""

import functools
import json
import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, overload

from ... import __version__
from ...protocol.errors import PenstockError
from ...protocol.fields.rules import shown
from ..console import logs
from .configuration.generation_config import ASGenerationConfigBuilder
from .configuration.generation_keys import Generation, generation_of
from .configuration.model_config import AsModelConfig
from .engine_state import EngineState
from .installed_model import InstalledModel, ModelState
from .loaders.loader import ModelLoader
from .names import GenerateRequestStatus
from .request_handle import RequestHandle, handle_of, one_dimensional, one_name, one_path, one_text, only_row
from .result_queue import GeneratedElements, ResultQueue
from .statistics import AsEngineStat, engine_stat
from .status import AsStatus, status_of, wrong_argument

_log = logging.getLogger("penstock.allspark")

Arguments = ParamSpec("Arguments")
Started = tuple[AsStatus, RequestHandle | None, ResultQueue | None]
StartedTexts = tuple[AsStatus, list[RequestHandle | None], list[ResultQueue | None]]
GenerationConfig = ASGenerationConfigBuilder | Mapping[str, Any]


def _failed(error: Exception) -> AsStatus:
    """The status of any error, also of a foreign one: a value whose own methods fail must not raise out of a call."""
    status = status_of(error)
    _log.warning("%s: %s", status.name, status.message)
    return status


def _answered_by_status(
    call: Callable[Concatenate["Engine", Arguments], None],
) -> Callable[Concatenate["Engine", Arguments], AsStatus]:
    """Make a call that raises into one that returns its status."""

    def answered(self: "Engine", /, *arguments: Arguments.args, **options: Arguments.kwargs) -> AsStatus:
        try:
            call(self, *arguments, **options)
        except Exception as error:
            return _failed(error)
        return AsStatus.ALLSPARK_SUCCESS

    functools.update_wrapper(answered, call)
    return answered


class Engine:
    """`close()`, garbage collection and exit end it with all its models."""

    def __init__(self) -> None:
        self._state = EngineState()
        self._finalizer = weakref.finalize(self, self._state.close_at_once)
        logs.say(f"AllSpark engine of {self.get_version_full()}", quiet=logs.is_quiet(False))

    # --- models --------------------------------------------------------------------------------------------------

    @_answered_by_status
    def install_model(self, as_model_config_struct: AsModelConfig) -> None:
        """Make a model known by its `model_name`. Nothing is loaded yet."""
        self._state.install(as_model_config_struct)

    build_model_from_config_struct = install_model

    @_answered_by_status
    def start_model(self, model_name: str) -> None:
        """Load the model; returns when requests may be started."""
        self._state.start(model_name)

    @_answered_by_status
    def stop_model(self, model_name: str) -> None:
        """End the model's requests, which keep what they have, and its processes. It may be started again."""
        self._state.find(model_name).stop()

    @_answered_by_status
    def release_model(self, model_name: str) -> None:
        """The same, for good. The name may be installed again."""
        self._state.find(model_name).release()

    @_answered_by_status
    def load_lora(self, model_name: str, lora_name: str, lora_path: str | os.PathLike[str] | None = None) -> None:
        """Load an adapter that PEFT saved in the folder `lora_path`; requests then name it by `lora_name`. Without a
        folder, the name is one."""
        name = one_name(lora_name)
        folder = one_path(name if lora_path is None else lora_path)
        self._state.find(model_name).running_session().adapters.load(name, folder)

    @_answered_by_status
    def unload_lora(self, model_name: str, lora_name: str) -> None:
        """Forget an adapter that no request uses."""
        self._state.find(model_name).running_session().adapters.unload(one_name(lora_name))

    def model_state(self, model_name: str) -> ModelState | None:
        """None if no model of that name was installed."""
        model = self._known(model_name)
        return None if model is None else model.state

    # --- requests ------------------------------------------------------------------------------------------------

    @overload
    def start_request_text(
        self, model_name: str, model: Any, input_str_or_array: str, generate_config_builder: GenerationConfig
    ) -> Started: ...

    @overload
    def start_request_text(
        self, model_name: str, model: Any, input_str_or_array: Sequence[str], generate_config_builder: GenerationConfig
    ) -> StartedTexts: ...

    def start_request_text(
        self, model_name: str, model: Any, input_str_or_array: Any, generate_config_builder: GenerationConfig
    ) -> Any:
        """Start a request for a text; for a list one request for each, with lists of handles and queues.

        Texts become tokens by the installed model's own tokenizer, whatever loader `model` is. Of a list the status is
        that of the first text that was refused, in whose place stands None.
        """
        texts, config = input_str_or_array, generate_config_builder
        if not isinstance(texts, (list, tuple)) or not texts:
            return _answered(self._start_text, model_name, model, texts, config)
        answers = (_answered(self._start_text, model_name, model, text, config) for text in texts)
        statuses, handles, queues = zip(*answers)
        refused = (status for status in statuses if not status.is_success)
        return next(refused, AsStatus.ALLSPARK_SUCCESS), list(handles), list(queues)

    def start_request_ids(
        self, model_name: str, model: Any, input_ids: Any, generate_config_builder: GenerationConfig
    ) -> Started:
        """Start a request for token ids: a list, or anything one-dimensional with `tolist()`."""
        return _answered(self._start_ids, model_name, model, input_ids, generate_config_builder)

    def start_request(
        self, model_name: str, inputs: Mapping[str, Any], generate_config: GenerationConfig | None = None
    ) -> Started:
        """The older form of `start_request_ids`: `inputs` is {"input_ids": …}, one row of ids or a DLPack capsule."""
        return _answered(self._start_inputs, model_name, inputs, {} if generate_config is None else generate_config)

    @_answered_by_status
    def stop_request(self, model_name: str, request_handle: RequestHandle) -> None:
        """End a request, which keeps what it has."""
        handle = handle_of(request_handle)
        self._state.find(model_name).stop_request(handle)

    @_answered_by_status
    def release_request(self, model_name: str, request_handle: RequestHandle) -> None:
        """Forget a request, and end it if it runs. Its queue stays readable."""
        handle = handle_of(request_handle)
        self._state.find(model_name).release_request(handle)

    @_answered_by_status
    def sync_request(self, model_name: str, request_handle: RequestHandle | None) -> None:
        """Wait for a request's end; None: for that of all requests of the model."""
        handle = None if request_handle is None else handle_of(request_handle)
        self._state.find(model_name).sync_request(handle)

    def get_wait(self, model_name: str, result_queue: ResultQueue) -> GeneratedElements | None:
        """The older form of `result_queue.Get()`."""
        return _queue_of(model_name, result_queue).Get()

    def get_no_wait(self, model_name: str, result_queue: ResultQueue) -> GeneratedElements | None:
        """The older form of `result_queue.GetNoWait()`."""
        return _queue_of(model_name, result_queue).GetNoWait()

    def get_request_status(self, model_name: str, result_queue: ResultQueue) -> GenerateRequestStatus:
        """The older form of `result_queue.GenerateStatus()`."""
        return _queue_of(model_name, result_queue).GenerateStatus()

    def _start_ids(self, name: str, loader: Any, ids: Any, config: GenerationConfig) -> RequestHandle:
        model, generation = self._ready_for(name, loader, config)
        return model.start_ids(one_dimensional(ids), generation)

    def _start_text(self, name: str, loader: Any, text: Any, config: GenerationConfig) -> RequestHandle:
        model, generation = self._ready_for(name, loader, config)
        return model.start_text(one_text(text), generation)

    def _start_inputs(self, name: str, inputs: Any, config: GenerationConfig) -> RequestHandle:
        model, generation = self._ready_for(name, None, config)
        return model.start_ids(only_row(inputs), generation)

    def _ready_for(self, name: str, loader: Any, config: GenerationConfig) -> tuple[InstalledModel, Generation]:
        if loader is not None and not isinstance(loader, ModelLoader):
            raise wrong_argument(f"model={shown(loader)}: must be the loader of the model, or None.")
        model = self._state.find(name)
        self._state.require_open()
        model.running_session()
        return model, generation_of(config)

    # --- what it knows -------------------------------------------------------------------------------------------

    def get_version_full(self) -> str:
        return f"penstock {__version__}"

    def get_rank_id(self) -> int:
        """0: whoever makes an `Engine` speaks for all ranks."""
        return 0

    def is_allspark_work_as_service(self) -> bool:
        return False

    def get_model_information(self, model_name: str) -> str:
        """JSON of the model's name, state, settings and, while it runs, its plan; {} for a name that is unknown."""
        model = self._known(model_name)
        return json.dumps({} if model is None else _described(model), ensure_ascii=False, default=str)

    get_model_info = get_model_information

    def get_as_engine_stat(self, model_name: str) -> AsEngineStat:
        """Statistics of the model; zeros unless it runs."""
        try:
            session = self._state.find(model_name).running_session()
            stats = session.transport.stats()
        except PenstockError:
            return AsEngineStat(model_name if isinstance(model_name, str) else "")
        return engine_stat(model_name, stats, session.config.block_size)

    def _known(self, name: Any) -> InstalledModel | None:
        return self._state.models.get(name) if isinstance(name, str) else None

    # --- its end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all models and their requests, which keep what they have; the engine takes no other."""
        self._state.close()
        self._finalizer.detach()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        states = ", ".join(f"{model.name}: {model.state}" for model in list(self._state.models.values()))
        return f"<Engine {states or 'without models'}>"


def _queue_of(name: Any, queue: Any) -> ResultQueue:
    if not isinstance(name, str):
        raise wrong_argument(f"model_name={shown(name)}: must be text.")
    if not isinstance(queue, ResultQueue):
        raise wrong_argument(f"result_queue={shown(queue)}: must be the queue that starting a request gave.")
    return queue


def _answered(start: Callable[..., RequestHandle], *arguments: Any) -> Started:
    try:
        handle = start(*arguments)
    except Exception as error:
        return _failed(error), None, None
    return AsStatus.ALLSPARK_SUCCESS, handle, handle.queue


def _described(model: InstalledModel) -> dict[str, Any]:
    session = model.session
    plan = session.plan if session is not None and model.state is ModelState.Running else None
    described = {**model.config.to_dict(), "model_path": model.source, "state": model.state}
    if plan is not None:
        described["plan"] = {
            "device": plan.device_name,
            "kernels": plan.kernels,
            "dtype": plan.dtype,
            "kv_cache_dtype": plan.kv_dtype,
            "weight_bytes": plan.weight_bytes,
            "kv_cache_bytes": plan.kv_bytes,
            "max_model_len": plan.max_model_len,
            "vocab_size": plan.vocab_size,
        }
    return described
