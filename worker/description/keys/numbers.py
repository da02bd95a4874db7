"""Numbers and flags of a config.json, each checked before anything is planned from it."""

from collections.abc import Mapping
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ..origin import Origin
from ..parts.rope import is_positive

_FLAGS = (
    *("tie_word_embeddings", "use_sliding_window", "attention_bias", "mlp_bias", "use_bias", "qkv_bias", "bias"),
    *("use_qk_norm", "norm_topk_prob", "use_qkv_bias", "qk_layernorm", "use_parallel_residual", "attention_out_bias"),
    *("conv_bias", "use_expert_bias", "block_auto_adjust_ff_dim", "attention_k_eq_v", "use_double_wide_mlp"),
    "enable_moe_block",
)

# Far above any real model: a folder may come from a stranger, and memory is planned from these numbers.
LARGEST = 1 << 30
MOST = {
    "num_hidden_layers": 4096,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "num_nextn_predict_layers": 64,
    **dict.fromkeys(("head_dim", "hidden_size_per_layer_input"), 8192),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4096),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8192),
    "q_lora_rank": 1 << 20,
    **dict.fromkeys(("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8192),
    "hidden_size": 1 << 20,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 8192),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_intermediate_size"), 1 << 24),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 1 << 24),
}


def require_flags(config: Mapping[str, Any], origin: Origin) -> None:
    """Reject flags that aren't booleans: the text "false" would count as true."""
    for key in _FLAGS:
        if config.get(key) not in (None, False, True):
            raise ConfigError(f"{origin}: {key} must be true or false, and is {shown(config[key])}.")


def count(config: Mapping[str, Any], origin: Origin, key: str, default: int | None = None) -> int:
    """Read a positive whole number. A missing key gives the default, if any, which may be 0."""
    value = config.get(key)
    if default is not None and value in (None, default):
        return default
    if type(value) is not int or value < 1:
        raise ConfigError(f"{origin}: {key} must be a positive whole number, and is {shown(value)}.")
    if value > (most := MOST.get(key, LARGEST)):
        raise ConfigError(f"{origin}: {key} is {shown(value)}, and no model has more than {most:,}.")
    return value


def positive(config: Mapping[str, Any], origin: Origin, key: str, default: float) -> float:
    value = config.get(key, default)
    if not is_positive(value):
        raise ConfigError(f"{origin}: {key} must be a positive number, and is {shown(value)}.")
    return value
