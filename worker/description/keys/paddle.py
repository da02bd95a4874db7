"""Translates a config.json written by Paddle's classes into the keys and values of transformers' class.

Paddle's engines have different defaults from transformers, and some different words. Keys that would change an answer
and have no counterpart are refused by name. Imports no torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from .ernie_vl import ERNIE_VL

_OF_PICTURES = "ernie4_5_vl_moe"
# transformers' model type, by architecture.
_TYPES = {
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    **dict.fromkeys(ERNIE_VL, _OF_PICTURES),
}
# Only Paddle's classes write these.
_MARKS = (
    *("paddlenlp_version", "paddleformers_version", "fuse_rope", "fuse_linear", "fuse_ln", "fuse_swiglu"),
    *("fuse_rms_norm", "fuse_attention_ffn", "fuse_attention_qkv", "fuse_gate_detach_matmul", "use_rmsnorm"),
    *("use_fast_ln", "use_flash_attention", "add_tail_layers", "compression_ratio", "weight_share_add_bias"),
)
# Defaults that all of Paddle's engines share and that differ from transformers'.
_DEFAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dtype": lambda config: "bfloat16",
    "rope_theta": lambda config: 10_000.0,
    "tie_word_embeddings": lambda config: False,
    "num_key_value_heads": lambda config: config["num_attention_heads"],
    "head_dim": lambda config: config["hidden_size"] // config["num_attention_heads"],
    "moe_num_shared_experts": lambda config: 0,
}
# Paddle's engines disagree about the defaults of these keys.
_NEEDED = ("hidden_size", "num_attention_heads", "rms_norm_eps", "max_position_embeddings")
_NEEDED_OF_EXPERTS = ("moe_k", "moe_num_experts")
_SPELLINGS = {("hidden_act", "swiglu"): "silu"}


class _Demand(NamedTuple):
    holds: Callable[[Any], bool]
    words: str


def _is_one(value: Any) -> bool:
    return value == 1


# Required values: others would make it a different model. `family_keys.py` has those of its experts' keys.
_DEMANDS = {
    "compression_ratio": _Demand(_is_one, "1: positions are not divided"),
    "scale_qk_coeff": _Demand(_is_one, "1: attention is scaled by the width of its heads alone"),
    "freq_allocation": _Demand(lambda value: value == 0, "0: no positions of images are known"),
    "use_rmsnorm": _Demand(lambda value: value is True, "true: layers are normed by their root mean square"),
}


_IN_ORDER_OF_CARDS = "its integers lie in an order that one kind of card wants and the files don't state"
# Why else a kind can't be read.
_UNREAD = {
    **dict.fromkeys(("w4a8", "tensor_wise_fp8"), "its products expect inputs that are rotated before they are rounded"),
    **dict.fromkeys(("wint2", "w4w2"), "its 2-bit codes are decoded by a kernel for cards alone"),
    "block_wise_fp8": "8-bit floats are not read from Paddle's layout",
}


def as_transformers_writes_it(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Translate Paddle's config into transformers' keys; return any other config unchanged."""
    quantization = config.get("quantization_config")
    if config.get("is_quantized") or (isinstance(quantization, dict) and "quantization" in quantization):
        config = _without_quantization(config, path)
    model_type = _type_of(config)
    if model_type is None or not (any(mark in config for mark in _MARKS) or _is_named_so(path.parent)):
        return config
    demands = {
        key: demand for key, demand in _DEMANDS.items() if model_type != _OF_PICTURES or key != "freq_allocation"
    }
    for key, demand in demands.items():
        if config.get(key) is not None and not demand.holds(config[key]):
            raise ConfigError(f"{path}: {key} is {shown(config[key])}, and only {demand.words} is computed here.")
    given = {key: _spelled(key, value) for key, value in config.items() if value is not None and key not in _MARKS}
    needed = _NEEDED + (() if model_type == "ernie4_5" else _NEEDED_OF_EXPERTS)
    if missing := [key for key in needed if key not in given]:
        raise ConfigError(f"{path} lacks {', '.join(missing)}. Download it again with the model.")
    own = {key: value(given) for key, value in _DEFAULTS.items() if key not in given}
    return own | given | {"model_type": model_type}


def _type_of(config: dict[str, Any]) -> str | None:
    architectures = config.get("architectures")
    listed = architectures if isinstance(architectures, list) else []
    return next((_TYPES[name] for name in listed if isinstance(name, str) and name in _TYPES), None)


def _is_named_so(folder: Path) -> bool:
    """Check the folder's name; in the Hugging Face cache the model's name is a folder further up."""
    return any(part.endswith("-Paddle") for part in folder.absolute().parts)


def _spelled(key: str, value: Any) -> Any:
    return _SPELLINGS.get((key, value), value) if isinstance(value, str) else value


def _without_quantization(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Drop FastDeploy's `quantization_config` if it only asks for quantization while loading."""
    given = config.get("quantization_config") or {}
    of_experts = given.get("is_moe_quantized", "kv_cache_quant_type" not in given)
    if not (config.get("is_quantized") or given.get("is_quantized", of_experts)):
        return {key: value for key, value in config.items() if key != "quantization_config"}
    kinds = (given.get("moe_quant_type"), given.get("dense_quant_type"), given.get("quantization"))
    kind = next((each for each in kinds if isinstance(each, str)), "FastDeploy's")
    why = _UNREAD.get(kind, _IN_ORDER_OF_CARDS)
    raise ConfigError(
        f"{path.parent} is quantized for FastDeploy ({kind}), and {why}. Use the model's bfloat16 form, "
        "with quantization='int8' or 'int4' if it should be small."
    )
