"""Families with DeepSeek's attention to latents, with experts and without, as rows of the table in `table.py`."""

from ..parts import mixtures
from .family import Family, deepseek_v2_biases, latent_biases

LATENT_DEFAULTS = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_interleave": True,
}
DEEPSEEK_V2 = Family(
    "deepseek_v2",
    biased=deepseek_v2_biases,
    is_latent=True,
    mixture=mixtures.DEEPSEEK_V2,
    defaults=LATENT_DEFAULTS
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
DEEPSEEK_V3 = Family(
    "deepseek_v3",
    biased=latent_biases,
    is_latent=True,
    mixture=mixtures.DEEPSEEK_V3,
    defaults=LATENT_DEFAULTS
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
GLM4_MOE_LITE = Family(
    "glm4_moe_lite",
    biased=latent_biases,
    is_latent=True,
    mixture=mixtures.GLM4_MOE_LITE,
    defaults=LATENT_DEFAULTS
    | {
        "vocab_size": 154_880,
        "hidden_size": 2048,
        "intermediate_size": 10_240,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "max_position_embeddings": 202_752,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1536,
        "n_group": 1,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 1.8,
        "topk_group": 1,
    },
)
YOUTU = Family(
    "youtu",
    biased=latent_biases,
    is_latent=True,
    defaults=LATENT_DEFAULTS
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
