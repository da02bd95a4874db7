"""How model families differ, as rows of a table.

A family that differs in its data flow gets a file beside `decoder.py`; one that differs in a detail gets a field here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...protocol.fields.rules import shown
from .mixtures import DEEPSEEK_V2, DEEPSEEK_V3, ERNIE_MOE, GPT_OSS, MIXTRAL, QWEN2_MOE, QWEN3_MOE, Mixture

Windows = tuple[int | None, ...]

_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class Family:
    """The details of a decoder that its config does not spell out."""

    name: str
    # The sliding window of each layer, None where it sees everything.
    windows: Callable[[dict[str, Any], int], Windows] = lambda config, num_layers: (None,) * num_layers
    # The projections that have a bias, needed where weights are made up (in a checkpoint one is found by its presence).
    biased: Callable[[dict[str, Any]], tuple[str, ...]] = lambda config: ()
    qk_norm: bool = False  # each head of query and key is normed before it is rotated
    has_sinks: bool = False  # each query head has a logit of its own in the softmax
    rotates_pairs: bool = False  # neighbours rotate against one another, not halves
    mixture: Mixture | None = None  # of its sparse layers, where there are any
    is_latent: bool = False  # attention is to one small vector a token, from which every head's key and value come
    rope_theta: float = 10_000.0  # where the config leaves it out
    # What transformers' class for the family takes for keys that a config leaves out.
    defaults: dict[str, Any] = field(default_factory=dict)


def _every_layer(config: dict[str, Any], num_layers: int) -> Windows:
    return (config["sliding_window"],) * num_layers


def _layer_types(config: dict[str, Any], num_layers: int) -> Windows:
    window = config["sliding_window"] if config.get("use_sliding_window") else None
    types = config.get("layer_types")
    if types is None:
        first = config["max_window_layers"]
        types = ["sliding_attention" if layer >= first else "full_attention" for layer in range(num_layers)]
    if unknown := next((kind for kind in types if kind not in _KINDS), None):
        raise ValueError(f"layer_types has {shown(unknown)}, and only {' and '.join(_KINDS)} are supported")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _every_second_layer(config: dict[str, Any], num_layers: int) -> Windows:
    """Where a config of Qwen2-MoE names no `layer_types`: those with an even number, the first ones only."""
    if config.get("layer_types") is None:
        first = [layer % 2 == 0 and layer < config["max_window_layers"] for layer in range(num_layers)]
        config = config | {"layer_types": [_KINDS[is_sliding] for is_sliding in first]}
    return _layer_types(config, num_layers)


def _sliding_first(config: dict[str, Any], num_layers: int) -> Windows:
    """Where a config of gpt-oss names no `layer_types`, a window and none take turns."""
    types = config.get("layer_types") or [_KINDS[(layer + 1) % 2] for layer in range(num_layers)]
    return _layer_types(config | {"layer_types": types, "use_sliding_window": True}, num_layers)


def _window_if_used(config: dict[str, Any], num_layers: int) -> Windows:
    return (config["sliding_window"] if config.get("use_sliding_window") else None,) * num_layers


_QKV = ("q_proj", "k_proj", "v_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def _llama_biases(config: dict[str, Any]) -> tuple[str, ...]:
    attention = (*_QKV, "o_proj") if config.get("attention_bias") else ()
    return attention + (_MLP if config.get("mlp_bias") else ())


def _qwen3_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_QKV, "o_proj") if config.get("attention_bias") else ()


def _ernie_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_QKV, "o_proj", *_MLP) if config.get("use_bias") else ()


def _latent_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return ("q_a_proj", "kv_a_proj_with_mqa", "o_proj") if config.get("attention_bias") else ()


def _deepseek_v2_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return _latent_biases(config) + (_MLP if config.get("mlp_bias") else ())


_DEFAULTS = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_QWEN_DEFAULTS = _DEFAULTS | {
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_LLAMA = Family(
    "llama",
    biased=_llama_biases,
    defaults=_DEFAULTS | {"vocab_size": 32_000, "intermediate_size": 11_008, "max_position_embeddings": 2048},
)
_MISTRAL = Family(
    "mistral",
    windows=_every_layer,
    defaults=_DEFAULTS
    | {
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
)
_QWEN2 = Family("qwen2", windows=_layer_types, biased=lambda config: _QKV, defaults=_QWEN_DEFAULTS)
_QWEN3 = Family(
    "qwen3", windows=_layer_types, biased=_qwen3_biases, qk_norm=True, defaults=_QWEN_DEFAULTS | {"head_dim": 128}
)
_ERNIE = Family(
    "ernie4_5",
    biased=_ernie_biases,
    rotates_pairs=True,
    rope_theta=500_000.0,
    defaults={
        "vocab_size": 103_424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
)
_MIXTRAL = Family(
    "mixtral",
    windows=_every_layer,
    mixture=MIXTRAL,
    rope_theta=1_000_000.0,
    defaults=_MISTRAL.defaults
    | {"rms_norm_eps": 1e-5, "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2},
)
_QWEN_MOE_DEFAULTS = _DEFAULTS | {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
}
_QWEN2_MOE = Family(
    "qwen2_moe",
    windows=_every_second_layer,
    biased=lambda config: _QKV if config["qkv_bias"] else (),
    mixture=QWEN2_MOE,
    defaults=_QWEN_MOE_DEFAULTS
    | {
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_window_layers": 28,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts_per_tok": 4,
        "num_experts": 60,
        "qkv_bias": True,
    },
)
_QWEN3_MOE = Family(
    "qwen3_moe",
    windows=_window_if_used,
    biased=_qwen3_biases,
    qk_norm=True,
    mixture=QWEN3_MOE,
    defaults=_QWEN_MOE_DEFAULTS
    | {
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
    },
)
_ERNIE_MOE = Family(
    "ernie4_5_moe",
    biased=_ernie_biases,
    rotates_pairs=True,
    mixture=ERNIE_MOE,
    rope_theta=500_000.0,
    defaults={
        "vocab_size": 103_424,
        "hidden_size": 2560,
        "intermediate_size": 12_288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "moe_intermediate_size": 1536,
        "moe_k": 6,
        "moe_num_experts": 64,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
        "moe_norm_min": 1e-12,
    },
)
_LATENT_DEFAULTS = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_interleave": True,
}
_DEEPSEEK_V2 = Family(
    "deepseek_v2",
    biased=_deepseek_v2_biases,
    is_latent=True,
    mixture=DEEPSEEK_V2,
    defaults=_LATENT_DEFAULTS
    | {
        "vocab_size": 102_400,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "first_k_dense_replace": 0,
        "moe_intermediate_size": 1407,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.0,
        "topk_method": "greedy",
    },
)
_DEEPSEEK_V3 = Family(
    "deepseek_v3",
    biased=_latent_biases,
    is_latent=True,
    mixture=DEEPSEEK_V3,
    defaults=_LATENT_DEFAULTS
    | {
        "vocab_size": 129_280,
        "hidden_size": 7168,
        "intermediate_size": 18_432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "max_position_embeddings": 4096,
        "first_k_dense_replace": 3,
        "moe_intermediate_size": 2048,
        "n_group": 8,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.5,
        "topk_group": 4,
    },
)
_YOUTU = Family(
    "youtu",
    biased=_latent_biases,
    is_latent=True,
    defaults=_LATENT_DEFAULTS
    | {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    },
)

_GPT_OSS = Family(
    "gpt_oss",
    windows=_sliding_first,
    biased=_qwen3_biases,
    has_sinks=True,
    mixture=GPT_OSS,
    rope_theta=150_000.0,
    defaults={
        "vocab_size": 201_088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "attention_bias": True,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "sliding_window": 128,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
)

# By the name that a config gives under `architectures`.
FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_ForCausalLM": _ERNIE,  # as Baidu's own code named it
    "MixtralForCausalLM": _MIXTRAL,
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3MoeForCausalLM": _QWEN3_MOE,
    "Ernie4_5_MoeForCausalLM": _ERNIE_MOE,
    "DeepseekV2ForCausalLM": _DEEPSEEK_V2,
    "DeepseekV3ForCausalLM": _DEEPSEEK_V3,
    "YoutuForCausalLM": _YOUTU,
    "GptOssForCausalLM": _GPT_OSS,
}
