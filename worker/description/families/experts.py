"""Families with experts, as rows of the table in `table.py`; those with latents are in `latent.py`."""

from dataclasses import replace

from ..parts import mixtures
from ..parts.rope import in_pairs, in_turns
from .dense import DEFAULTS, MISTRAL
from .family import (
    QKV,
    Family,
    attention_biases,
    by_head,
    by_type_whatever_is_used,
    ernie_biases,
    every_layer,
    every_second_layer,
    llama_biases,
    sliding_first,
    softmax_in_every_layer,
    window_if_used,
)

MIXTRAL = Family(
    "mixtral",
    windows=every_layer,
    mixture=mixtures.MIXTRAL,
    rope_theta=1_000_000.0,
    defaults=MISTRAL.defaults
    | {"rms_norm_eps": 1e-5, "sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2},
)
QWEN_MOE_DEFAULTS = DEFAULTS | {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
}
QWEN2_MOE = Family(
    "qwen2_moe",
    windows=every_second_layer,
    biased=lambda config: QKV if config["qkv_bias"] else (),
    mixture=mixtures.QWEN2_MOE,
    defaults=QWEN_MOE_DEFAULTS
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
QWEN3_MOE = Family(
    "qwen3_moe",
    windows=window_if_used,
    biased=attention_biases,
    qk_norm=by_head,
    mixture=mixtures.QWEN3_MOE,
    defaults=QWEN_MOE_DEFAULTS
    | {
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
    },
)
QWEN3_VL_MOE = replace(
    QWEN3_MOE,
    name="qwen3_vl_moe_text",
    windows=Family.windows,
    axes=(in_turns, [24, 20, 20]),
    rope_theta=500_000.0,
    mixture=replace(mixtures.QWEN3_MOE, names=replace(mixtures.QWEN3_MOE.names, has_transposed=True)),
    defaults=QWEN3_MOE.defaults
    | {
        "max_position_embeddings": 128_000,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
    },
)
ERNIE_MOE = Family(
    "ernie4_5_moe",
    biased=ernie_biases,
    rotates_pairs=True,
    mixture=mixtures.ERNIE_MOE,
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
ERNIE_VL_MOE = replace(
    ERNIE_MOE,
    name="ernie4_5_vl_moe_text",
    mixture=mixtures.ERNIE_VL_MOE,
    axes=(in_pairs, [22, 22, 20]),
    defaults={**ERNIE_MOE.defaults, "media_moe_intermediate_size": 512},
)
OLMOE = Family(
    "olmoe",
    biased=attention_biases,
    qk_norm=lambda config: "together",
    clamps_qkv=True,
    mixture=mixtures.OLMOE,
    defaults=DEFAULTS
    | {
        "vocab_size": 50_304,
        "hidden_size": 2048,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 8,
        "num_experts": 64,
        "norm_topk_prob": False,
    },
)
GLM4_MOE = Family(
    "glm4_moe",
    biased=lambda config: QKV if config.get("attention_bias") else (),
    qk_norm=lambda config: "by head" if config["use_qk_norm"] else None,
    mixture=mixtures.GLM4_MOE,
    rotates_part=True,
    defaults=DEFAULTS
    | {
        "vocab_size": 151_552,
        "intermediate_size": 10_944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_routed_experts": 128,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "use_qk_norm": False,
    },
)
DOTS1 = Family(
    "dots1",
    windows=by_type_whatever_is_used,
    biased=attention_biases,
    qk_norm=by_head,
    mixture=mixtures.DOTS1,
    defaults=DEFAULTS
    | {
        "vocab_size": 152_064,
        "hidden_size": 4608,
        "intermediate_size": 10_944,
        "num_hidden_layers": 62,
        "max_position_embeddings": 2048,
        "sliding_window": 4096,
        "max_window_layers": 62,
        "moe_intermediate_size": 1408,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 0,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
)
SOLAR_OPEN = Family(
    "solar_open",
    biased=lambda config: QKV if config.get("attention_bias") else (),
    mixture=mixtures.SOLAR_OPEN,
    rope_theta=1_000_000.0,
    defaults=GLM4_MOE.defaults
    | {
        "vocab_size": 196_608,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "head_dim": 128,
        "moe_intermediate_size": 1280,
        "first_k_dense_replace": 0,
        "partial_rotary_factor": 1.0,
    },
)
MINIMAX_M2 = Family(
    "minimax_m2",
    windows=softmax_in_every_layer,
    qk_norm=lambda config: "together",
    mixture=mixtures.MINIMAX_M2,
    rotates_part=True,
    rotated="rotary_dim",
    rope_theta=5_000_000.0,
    defaults=DEFAULTS
    | {
        "vocab_size": 200_064,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 196_608,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
    },
)
HY_V3 = Family(
    "hy_v3",
    biased=llama_biases,
    qk_norm=by_head,
    mixture=mixtures.HY_V3,
    rope_theta=11_158_840.0,
    defaults=DEFAULTS
    | {
        "vocab_size": 120_832,
        "intermediate_size": 13_312,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1536,
        "num_experts": 192,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "router_scaling_factor": 2.826,
    },
)
GPT_OSS = Family(
    "gpt_oss",
    windows=sliding_first,
    biased=attention_biases,
    has_sinks=True,
    mixture=mixtures.GPT_OSS,
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
