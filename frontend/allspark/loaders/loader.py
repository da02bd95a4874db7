"""The base of a model's loaders: its tokenizer, its context, and builders that begin with its own files.

A loader reads the small files next to the weights and records how the weights are wanted; a process of the tree reads
and converts those when the model starts. Arguments by which DashInfer's own conversion is steered are accepted with a
notice where nothing here depends on them, and refused where something would.
"""

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import BOOLEAN, shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.files.model_file import read_model_settings
from ....protocol.options.option_rules import DTYPE, ROPE, TEXT, one_of
from ...call_arguments import named_arguments
from ...console import logs
from ...models.model_files import ModelFiles, find_model
from ..configuration.generation_config import ASGenerationConfigBuilder
from ..configuration.model_config import AsModelConfig, Quantization
from ..configuration.runtime_builder import AsModelRuntimeConfigBuilder
from ..names import RoPEScaleMethod, TargetDevice

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

_LOAD_FORMAT = one_of("auto", "safetensors")
# Arguments of transformers' `from_pretrained`.
_DATA_TYPES = ("torch_dtype", "dtype")
_IDLE = (
    "device_map", "low_cpu_mem_usage", "use_safetensors", "attn_implementation", "local_files_only", "max_memory",
    "offload_folder", "use_cache",
)  # fmt: skip
_ROPE_TYPES = {RoPEScaleMethod.NO_SCALE: "default", RoPEScaleMethod.YaRN: "yarn", RoPEScaleMethod.NTK: "dynamic"}
_ROPE_FIGURES = {
    "type", "rope_type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "attention_factor", "truncate",
}  # fmt: skip
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")
_NO_LIMIT = 2**31 - 1


class ModelLoader(ABC):
    """Every method that isn't a getter returns the loader."""

    in_memory_serialize = False  # what `serialize` does

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self.data_type: str | None = None
        self.quantization: Quantization | None = None
        self.rope_scaling: dict[str, Any] | None = None
        self._path = path
        self._files: ModelFiles | None = None
        self._tokenizer: Tokenizer | None = None
        self._config: dict[str, Any] | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """The model for an engine to load: a folder, bundled name or hub id."""

    @property
    def files(self) -> ModelFiles:
        """The model's files; found, and downloaded if necessary, when first used."""
        if self._files is None:
            self._files = find_model(self.source)
        return self._files

    def load_model(
        self,
        override_data_type: Any = None,
        direct_load: bool = False,
        load_format: str = "auto",
        **options: Any,
    ) -> Self:
        """Make sure that the model is there; its weights are read when it starts.

        `override_data_type`, or `torch_dtype` as for transformers' `from_pretrained`, is the format of numbers that it
        computes in. How transformers would read the weights has no effect.
        """
        for name, value in {"override_data_type": override_data_type, **_of_from_pretrained(options)}.items():
            if value is not None:
                self.data_type = DTYPE.checked(name, value, ConfigError)
        if BOOLEAN.checked("direct_load", direct_load, ConfigError):
            say_idle("direct_load", "weights are always read from their files")
        _LOAD_FORMAT.checked("load_format", load_format, ConfigError)
        return self.read_model_config()

    def read_model_config(self) -> Self:
        self._config = read_model_settings(self.files.folder / "config.json")
        return self

    def init_tokenizer(self, padding_side: str = "left") -> Self:
        from ...text.tokenizer import Tokenizer

        if one_of("left", "right").checked("padding_side", padding_side, ConfigError) == "right":
            say_idle("padding_side", "prompts aren't padded")
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.files.tokenizer_folder, self.files.folder)
        return self

    def get_tokenizer(self) -> "Tokenizer | None":
        """None before `init_tokenizer`."""
        return self._tokenizer

    def get_model_config(self) -> dict[str, Any]:
        """The content of the model's config.json."""
        if self._config is None:
            self.read_model_config()
        return copy.deepcopy(self._config or {})

    def get_model_context_length(self) -> int:
        """The longest request that the model was made for, in tokens."""
        return scaled_context(context_length(self.get_model_config()), self.rope_scaling)

    def set_rope_scale_method(self, method: RoPEScaleMethod, parameter_dict: Mapping[str, Any]) -> Self:
        """Stretch rotary positions as `rope_scaling` of a config.json would: {"factor": 4.0, …}."""
        if not isinstance(method, RoPEScaleMethod):
            names = ", ".join(each.name for each in RoPEScaleMethod)
            raise ConfigError(f"method={shown(method)}: must be a RoPEScaleMethod: {names}.")
        if not isinstance(parameter_dict, Mapping):
            raise ConfigError(f'parameter_dict={shown(parameter_dict)}: must be a dict such as {{"factor": 4.0}}.')
        kind = _ROPE_TYPES[method]
        if (named := parameter_dict.get("rope_type", parameter_dict.get("type", kind))) != kind:
            raise ConfigError(f"parameter_dict: its type is {shown(named)}, and method={method.name} is {kind}.")
        if unknown := set(parameter_dict) - _ROPE_FIGURES:
            name = min(unknown, key=str)
            raise ConfigError(f"parameter_dict has no {shown(name)}.{suggestion(name, _ROPE_FIGURES)}")
        figures = {name: value for name, value in parameter_dict.items() if name not in ("type", "rope_type")}
        self.rope_scaling = ROPE.checked("parameter_dict", {"rope_type": kind, **figures}, ConfigError)
        return self

    @named_arguments
    def serialize(
        self,
        engine: Any,
        model_output_dir: str | os.PathLike[str] = "",
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        customized_quant_config: Mapping[str, Any] | None = None,
        multinode_mode: bool | None = None,
        lora_cfg: None = None,
    ) -> Self:
        """`serialize_to_memory` if the loader was made so, else `serialize_to_path`."""
        flags = enable_quant, weight_only_quant
        others: tuple[Any, ...] = multinode_mode, customized_quant_config, lora_cfg
        if not self.in_memory_serialize:
            return self.serialize_to_path(engine, model_output_dir, *flags, False, *others)
        if TEXT.checked("model_output_dir", model_output_dir, ConfigError):
            say_idle("model_output_dir", "the loader was made with in_memory_serialize=True")
        return self.serialize_to_memory(engine, *flags, *others)

    @named_arguments
    def serialize_to_memory(
        self,
        engine: Any,
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        multinode_mode: bool | None = None,
        customized_quant_config: Mapping[str, Any] | None = None,
        lora_cfg: None = None,
    ) -> Self:
        """Record what the weights are to become while they load; of converted ones, nothing."""
        _check_serialization(engine, multinode_mode, lora_cfg)
        enable, weight_only = _flags(enable_quant=enable_quant, weight_only_quant=weight_only_quant)
        self._serialize_to_memory(enable, weight_only, customized_quant_config)
        return self

    @named_arguments
    def serialize_to_path(
        self,
        engine: Any,
        model_output_dir: str | os.PathLike[str] = "",
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        skip_if_exists: bool = False,
        multinode_mode: bool | None = None,
        customized_quant_config: Mapping[str, Any] | None = None,
        lora_cfg: None = None,
    ) -> Self:
        """Write the model below `model_output_dir`, in a folder of its name, from which it is loaded from then on.

        What an equal call has written there is used as it is; `skip_if_exists` uses whatever was written there."""
        _check_serialization(engine, multinode_mode, lora_cfg)
        folder = TEXT.checked("model_output_dir", model_output_dir, ConfigError)
        enable, weight_only = _flags(enable_quant=enable_quant, weight_only_quant=weight_only_quant)
        skips = BOOLEAN.checked("skip_if_exists", skip_if_exists, ConfigError)
        self._serialize_to_path(folder, skips, enable, weight_only, customized_quant_config)
        return self

    @abstractmethod
    def _serialize_to_memory(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None: ...

    @abstractmethod
    def _serialize_to_path(
        self, folder: str, skips: bool, enable: bool, weight_only: bool, config: Mapping[str, Any] | None
    ) -> None: ...

    def free_model(self) -> Self:
        """Do nothing: nothing is held here, and an engine's copy is its own."""
        return self

    def free_memory_serialize_file(self) -> Self:
        """Do nothing: nothing is copied to a file in memory."""
        return self

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str,
        device_type: TargetDevice | str,
        device_ids: Sequence[int] | None,
        max_batch: int,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """A builder with all that this loader knows. -1 is the model's own context."""
        length = self.get_model_context_length() if max_context_length == -1 else max_context_length
        builder = AsModelRuntimeConfigBuilder()
        builder.model_name(engine_model_name).model_file_path(self.source).compute_unit(device_type, device_ids)
        self.record_in(builder.max_length(length).max_batch(max_batch).new_runtime_cfg)
        return builder

    def record_in(self, config: AsModelConfig) -> None:
        config.data_type = self.data_type
        config.quantization = self.quantization
        if self.rope_scaling is not None:
            config.options = {**config.options, "rope_scaling": self.rope_scaling}

    def create_reference_generation_config_builder(
        self, runtime_cfg: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder:
        """A builder that begins with the model's own defaults, and the longest request of model and engine."""
        builder = self._generation_defaults()
        if runtime_cfg is not None and not isinstance(runtime_cfg, AsModelConfig):
            raise ConfigError(f"runtime_cfg={shown(runtime_cfg)}: must be an AsModelConfig, as build() makes it.")
        if runtime_cfg is not None:
            builder.max_length(min(self.get_model_context_length(), runtime_cfg.engine_max_length))
        return builder

    def _generation_defaults(self) -> ASGenerationConfigBuilder:
        """The defaults in generation_config.json."""
        own = read_model_settings(self.files.folder / "generation_config.json")
        return ASGenerationConfigBuilder(own or None)


def _of_from_pretrained(options: dict[str, Any]) -> dict[str, Any]:
    """Return the number formats among arguments of transformers' `from_pretrained`; the others are idle or refused."""
    for name, value in options.items():
        if name == "trust_remote_code" and value:
            raise ConfigError("trust_remote_code=True: a checkpoint's code is never run, nor needed; leave it out.")
        if name not in (*_DATA_TYPES, *_IDLE, "trust_remote_code"):
            known = ("override_data_type", "direct_load", "load_format", *_DATA_TYPES, *_IDLE)
            raise TypeError(f"load_model() has no argument {name!r}.{suggestion(name, known)}")
        if name in _IDLE and value is not None:
            say_idle(name, "weights are read by the processes that compute with them")
    return {name: options[name] for name in _DATA_TYPES if name in options}


def say_idle(name: str, why: str) -> None:
    """One notice of an argument without effect."""
    logs.say(f"{name} has no effect: {why}.", quiet=logs.is_quiet(False))


def _flags(**flags: bool) -> list[bool]:
    return [BOOLEAN.checked(name, flag, ConfigError) for name, flag in flags.items()]


def _check_serialization(engine: Any, multinode_mode: bool | None, lora_cfg: Any) -> None:
    """Check the arguments that every `serialize` has and that change no recorded setting.

    A model's own processes do here what DashInfer's loaders ask of the engine.
    """
    if engine is not None and not hasattr(engine, "install_model"):
        raise ConfigError(f"engine={shown(engine)}: must be an Engine.")
    if multinode_mode is not None:
        BOOLEAN.checked("multinode_mode", multinode_mode, ConfigError)
        say_idle("multinode_mode", "weights are shared out among the ranks when a model starts")
    if lora_cfg is not None:
        raise ConfigError(f"lora_cfg={shown(lora_cfg)}: adapters are loaded by the engine's load_lora; leave it out.")


def scaled_context(context: int, rope_scaling: Any) -> int:
    """The context in tokens once `rope_scaling` has stretched the positions."""
    figures = rope_scaling if isinstance(rope_scaling, Mapping) else {}
    factor, trained = figures.get("factor", 1), figures.get("original_max_position_embeddings", context)
    is_known = isinstance(factor, (int, float)) and isinstance(trained, int) and 1 < factor < 1024
    return int(trained * factor) if is_known else context


def context_length(config: dict[str, Any]) -> int:
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        for key in _CONTEXT_KEYS:
            if isinstance(found := part.get(key), int) and found > 0:
                return found
    return _NO_LIMIT


def context_of(folder: Path) -> int:
    """The context of the model that lies in a folder."""
    return context_length(read_model_settings(folder / "config.json"))
