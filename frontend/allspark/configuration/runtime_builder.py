"""`AsModelRuntimeConfigBuilder`: writes an `AsModelConfig` call by call, from a dict, or from YAML.

A value that can't be right raises where it is given. After `build` the builder starts afresh.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.options.option_rules import ROPE, TEXT
from ..names import AsCacheMode, TargetDevice
from .compute_unit import compute_unit, parsed
from .model_config import FLAT_KEYS, FOREIGN_KEYS, RULES, AsModelConfig, model_folder

Parameters = ParamSpec("Parameters")


class AsModelRuntimeConfigBuilder:
    """Each method returns the builder."""

    def __init__(self) -> None:
        self.new_runtime_cfg = AsModelConfig()

    def _set(self, name: str, value: Any) -> Self:
        setattr(self.new_runtime_cfg, name, RULES[name].checked(name, value, ConfigError))
        return self

    def model_name(self, model_name: str) -> Self:
        """The name by which the engine knows the model."""
        if not isinstance(model_name, str) or not model_name:
            raise ConfigError(f"model_name={shown(model_name)}: must be text.")
        self.new_runtime_cfg.model_name = model_name
        return self

    def model_dir(self, model_dir: str | os.PathLike[str], file_name_prefix: str = "") -> Self:
        """The folder that `serialize_to_path` wrote to, and the name that the loader had."""
        folder = TEXT.checked("model_dir", model_dir, ConfigError)
        prefix = TEXT.checked("file_name_prefix", file_name_prefix, ConfigError)
        return self.model_file_path(model_folder(folder, prefix))

    def model_file_path(self, model_file_name: str | os.PathLike[str], weight_file_path: str = "") -> Self:
        """The model's folder, bundled name or hub id. Its weights lie in the same folder."""
        model = TEXT.checked("model_file_name", model_file_name, ConfigError)
        weights = TEXT.checked("weight_file_path", weight_file_path, ConfigError)
        if weights and Path(model) not in (Path(weights), Path(weights).parent):
            raise ConfigError(
                f"weight_file_path={shown(weights)}: the weights must lie in the model's folder, {model}."
            )
        self.new_runtime_cfg.model_path = model
        return self

    def compute_unit(
        self,
        target_device: TargetDevice | str,
        device_id_array: Sequence[int] | None = None,
        compute_thread_in_device: int = 0,
    ) -> Self:
        """The device and its numbers; `compute_thread_in_device` threads on each, for a CPU."""
        self.new_runtime_cfg.compute_unit = str(compute_unit(target_device, device_id_array))
        return self._set("num_threads", compute_thread_in_device)

    def set_compute_unit_from_str(self, compute_unit: str) -> Self:
        """The same from text such as "CUDA:0,1"."""
        self.new_runtime_cfg.compute_unit = str(parsed(compute_unit))
        return self

    def max_length(self, length: int | str) -> Self:
        """Prompt and output tokens of a request, at most."""
        return self._set("engine_max_length", length)

    def max_batch(self, batch: int | str) -> Self:
        """Requests computed together, at most; others wait."""
        return self._set("engine_max_batch", batch)

    def max_prefill_length(self, length: int | str) -> Self:
        """Prompt tokens of a step, at most; 0 leaves it to the device."""
        return self._set("engine_max_prefill_length", length)

    def prefill_cache(self, enable: bool = True) -> Self:
        """Whether the beginnings of prompts that are equal are computed once."""
        return self._set("enable_prefix_cache", enable)

    def prefix_cache_ttl(self, ttl: int | str = 300) -> Self:
        """Seconds after which a beginning that nobody asked for is forgotten."""
        return self._set("prefix_cache_ttl", ttl)

    def kv_cache_mode(self, cache_mode: AsCacheMode | str) -> Self:
        """The format in which keys and values are stored."""
        self.new_runtime_cfg.cache_mode = _cache_mode(cache_mode)
        return self

    def kv_cache_span_size(self, span_size: int | str) -> Self:
        """Tokens of a KV block: 16, 32, 64 or 128."""
        return self._set("cache_span_size", span_size)

    def set_span_init_size(self, span_init_size: int | str) -> Self:
        """Accepted without effect, with one notice: KV memory is planned as a whole."""
        return self._set("cache_span_num_init", span_init_size)

    def lora_max_rank(self, rank: int | str) -> Self:
        """The largest rank that an adapter may have."""
        return self._set("lora_max_rank", rank)

    def lora_max_num(self, num: int | str) -> Self:
        """Adapters in memory at once; 0 sets no memory aside for them."""
        return self._set("lora_max_num", num)

    def enable_sparsity_matmul(self, enable: bool = False) -> Self:
        """Accepted without effect, with one notice."""
        return self._set("enable_sparsity_matmul", enable)

    def from_dict(self, fields: Mapping[str, Any]) -> Self:
        """Take the settings of a file, the model's name and its compute unit among them."""
        missing = [key for key in ("model_name", "compute_unit") if key not in _mapping(fields)]
        if missing:
            raise ConfigError(f"A runtime configuration needs {' and '.join(missing)}.")
        return self.update_from_dict(fields)

    def update_from_dict(self, fields: Mapping[str, Any]) -> Self:
        """Take the settings that the dict has."""
        for key, value in _mapping(fields).items():
            if key in FLAT_KEYS:
                self._set(FLAT_KEYS[key], value)
            elif key in _OTHER_KEYS:
                _OTHER_KEYS[key](self, value)
            elif key not in FOREIGN_KEYS:
                known = [*FLAT_KEYS, *_OTHER_KEYS]
                raise ConfigError(f"There is no setting {shown(key)} of a model.{suggestion(key, known)}")
            elif value and key not in self.new_runtime_cfg.without_effect:
                self.new_runtime_cfg.without_effect += (key,)
        return self

    def from_yaml(self, text_or_path: str | Path) -> Self:
        """Take the settings of a YAML or JSON text or file, those below `runtime_config` if it has that."""
        from .yaml_text import from_yaml, read_yaml

        text = TEXT.checked("text_or_path", text_or_path, ConfigError)
        is_path = isinstance(text_or_path, Path) or _names_a_file(text)
        found = read_yaml(Path(text_or_path)) if is_path else from_yaml(str(text_or_path), "The configuration")
        return self.from_dict(found.get("runtime_config", found))

    def build(self) -> AsModelConfig:
        """The configuration; the next one starts from the defaults."""
        built, self.new_runtime_cfg = self.new_runtime_cfg, AsModelConfig()
        return built

    def _rope_scaling(self, value: Any) -> Self:
        if value:
            scaling = ROPE.checked("rope_scaling", value, ConfigError)
            self.new_runtime_cfg.options = {**self.new_runtime_cfg.options, "rope_scaling": scaling}
        return self

    def _unit_from_dict(self, unit: Any) -> Self:
        if isinstance(unit, str):
            return self.set_compute_unit_from_str(unit)
        known = ("device_type", "device_ids", "compute_thread_in_device")
        if not isinstance(unit, Mapping) or not {"device_type"} <= unit.keys() <= set(known):
            raise ConfigError(f"compute_unit={shown(unit)}: must be a dict of {', '.join(known)}, or such as CUDA:0,1.")
        return self.compute_unit(unit["device_type"], unit.get("device_ids"), unit.get("compute_thread_in_device", 0))


_Setter = Callable[Concatenate[AsModelRuntimeConfigBuilder, Parameters], Any]
_OTHER_KEYS: dict[str, _Setter[[Any]]] = {
    "model_name": AsModelRuntimeConfigBuilder.model_name,
    "compute_unit": AsModelRuntimeConfigBuilder._unit_from_dict,
    "kv_cache_mode": AsModelRuntimeConfigBuilder.kv_cache_mode,
    "rope_scaling": AsModelRuntimeConfigBuilder._rope_scaling,
}


def _mapping(fields: Any) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise ConfigError(f"Settings are a dict, not {type(fields).__name__}.")
    return fields


def _names_a_file(text: str) -> bool:
    """Whether it is a path rather than settings, which have a line for each, or at least a colon."""
    return bool(text) and "\n" not in text and (os.path.isfile(os.path.expanduser(text)) or ":" not in text)


def _cache_mode(mode: AsCacheMode | str) -> AsCacheMode:
    if isinstance(mode, AsCacheMode):
        return mode
    names = [each.name for each in AsCacheMode]
    if isinstance(mode, str) and mode in names:
        return AsCacheMode[mode]
    raise ConfigError(f"kv_cache_mode={shown(mode)}: must be one of {', '.join(names)}.{suggestion(mode, names)}")
