"""Converts DashInfer's `customized_quant_config` to the option `quantization`.

DashInfer's dict has one format for all layers. In addition, `layers` may name patterns of layers with formats of their
own, which DashInfer hasn't: {"weight_format": "uint4", "layers": {"lm_head": "int8"}}. What Penstock can't compute is
refused with a sentence.
"""

from collections.abc import Mapping
from typing import Any

from ....protocol.conversion import DEFAULT_GROUP_SIZE
from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from .model_config import Quantization

_KEYS = ("quant_method", "weight_format", "compute_method", "group_size", "activate_format", "layers")
# Formats of weights, and what runs them here for weights alone and for activations as well.
_FORMATS = {
    "int8": {"weight_only": "wint8", "activate_quant": "int8"},
    "uint8": {"weight_only": "wint8"},
    "int4": {"weight_only": "wint4", "activate_quant": "int4"},
    "uint4": {"weight_only": "wint4"},
}
_METHODS = ("weight_only", "activate_quant")
# Activations are computed in the model's own numbers; "int8" says that a product quantizes them.
_ACTIVATIONS = {
    "weight_only": ("float32", "float16", "bfloat16"),
    "activate_quant": ("int8", "float32", "float16", "bfloat16"),
}
_WHOLE_CHANNEL = -1
_GROUP_SIZES = (_WHOLE_CHANNEL, 32, 64, 128)


def quantization_of(config: Mapping[str, Any]) -> Quantization:
    """The option for DashInfer's dict. Raises `ConfigError`."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"customized_quant_config={shown(config)}: must be a dict with weight_format.")
    for key in config:
        if key == "group_settings":
            raise ConfigError("group_settings: one group size holds for all layers here; use group_size.")
        if key not in _KEYS:
            raise ConfigError(f"customized_quant_config has no key {shown(key)}.{suggestion(key, _KEYS)}")
    if config.get("quant_method", "instant_quant") not in ("instant_quant", "iq"):
        raise ConfigError(
            f"quant_method={shown(config['quant_method'])}: only instant_quant is made here; a checkpoint of GPTQ or "
            "AWQ is loaded as it is."
        )
    method = config.get("compute_method", "weight_only")
    if method not in _METHODS:
        raise ConfigError(f"compute_method={shown(method)}: must be {' or '.join(_METHODS)}.")
    activations = config.get("activate_format")
    if activations is not None and activations not in _ACTIVATIONS[method]:
        raise ConfigError(
            f"activate_format={shown(activations)}: must be one of {', '.join(_ACTIVATIONS[method])} for "
            f"compute_method={method}."
        )
    if "weight_format" not in config and "layers" not in config:
        raise ConfigError("customized_quant_config needs weight_format, such as int8 or uint4.")
    group_size_of(config)
    kinds = {pattern: _kind(written, method) for pattern, written in _layers(config).items()}
    if "weight_format" in config:
        general = _kind(config["weight_format"], method)
        if not kinds and general is not None:
            return general
        return {"*": general, **kinds}  # of patterns that match, the last one counts
    return kinds


def group_size_of(config: Mapping[str, Any] | None) -> int:
    """How many inputs of int4 share a scale in a folder that is written."""
    found = (config or {}).get("group_size", _WHOLE_CHANNEL)
    if found not in _GROUP_SIZES:
        raise ConfigError(f"group_size={shown(found)}: must be one of {', '.join(map(str, _GROUP_SIZES))}.")
    return DEFAULT_GROUP_SIZE if found == _WHOLE_CHANNEL else int(found)


def has_groups(quantization: Quantization | None) -> bool:
    """Whether any layer is int4, where a group of inputs shares a scale."""
    kinds = quantization.values() if isinstance(quantization, Mapping) else [quantization]
    return any(kind in ("int4", "wint4") for kind in kinds)


def _layers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    layers = config.get("layers", {})
    if not isinstance(layers, Mapping):
        raise ConfigError(f"layers={shown(layers)}: must be a dict of patterns and formats.")
    return layers


def _kind(weight_format: Any, method: str) -> str | None:
    if weight_format is None:  # a layer that is left as it is
        return None
    kinds = _FORMATS.get(weight_format, {}) if isinstance(weight_format, str) else {}
    if method not in kinds:
        fitting = [name for name, known in _FORMATS.items() if method in known]
        raise ConfigError(
            f"weight_format={shown(weight_format)}: must be one of {', '.join(fitting)} for compute_method={method}."
        )
    return kinds[method]


def kind_of_flags(enable_quant: bool, weight_only_quant: bool, recorded: Quantization | None) -> Quantization | None:
    """The format for `serialize` without a dict: the recorded one, otherwise 8 bits; None if it is off."""
    if not enable_quant:
        return None
    return recorded or ("wint8" if weight_only_quant else "int8")
