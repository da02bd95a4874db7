"""The configs of tiny models, one of each family, with shapes that are odd on purpose: few heads, widths that no tile
divides, numbers of experts that nothing divides. `tiny_model.py` writes checkpoints of them.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from penstock.worker.description.config import ModelConfig

from .tiny_hybrids import HYBRIDS

COMMON: dict[str, Any] = dict(
    vocab_size=307, num_hidden_layers=2, hidden_act="silu", max_position_embeddings=1024, rms_norm_eps=1e-6,
    tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, initializer_range=0.02, use_cache=True,
)  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=48, intermediate_size=88,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        attention_bias=False, mlp_bias=False,
    ),
    "mistral": dict(
        architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=40, intermediate_size=72,
        num_attention_heads=5, num_key_value_heads=1, head_dim=16, sliding_window=None,
    ),
    "qwen2": dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=112, intermediate_size=100,
        num_attention_heads=7, num_key_value_heads=7, sliding_window=None, use_sliding_window=False,
        max_window_layers=2,
    ),
    "qwen3": dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=False, sliding_window=None,
        use_sliding_window=False, max_window_layers=2, tie_word_embeddings=True,
    ),
    "ernie4_5": dict(
        architectures=["Ernie4_5ForCausalLM"], model_type="ernie4_5", hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, use_bias=False, tie_word_embeddings=True,
    ),
    "smollm3": dict(
        architectures=["SmolLM3ForCausalLM"], model_type="smollm3", hidden_size=48, intermediate_size=76,
        num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
        no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4, attention_bias=False, mlp_bias=False,
        use_sliding_window=False, sliding_window=None, max_window_layers=28, pretraining_tp=2, pad_token_id=0,
    ),
    "phi3": dict(
        architectures=["Phi3ForCausalLM"], model_type="phi3", hidden_size=64, intermediate_size=76,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=None, original_max_position_embeddings=1024,
        rms_norm_eps=1e-5, pad_token_id=0, partial_rotary_factor=1.0, full_attn_mod=1, interpolate_factor=1,
    ),
    "internlm3": dict(
        architectures=["InternLM3ForCausalLM"], model_type="internlm3", hidden_size=48, intermediate_size=84,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, attention_bias=False, mlp_bias=False,
    ),
    "ministral": dict(
        architectures=["MinistralForCausalLM"], model_type="ministral", hidden_size=56, intermediate_size=88,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, sliding_window=40,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "ministral3": dict(
        architectures=["Ministral3ForCausalLM"], model_type="ministral3", hidden_size=40, intermediate_size=72,
        num_attention_heads=4, num_key_value_heads=1, head_dim=32, sliding_window=None, pad_token_id=0,
    ),
    "seed_oss": dict(
        architectures=["SeedOssForCausalLM"], model_type="seed_oss", hidden_size=48, intermediate_size=92,
        num_attention_heads=5, num_key_value_heads=1, head_dim=16, attention_bias=True, attention_out_bias=False,
        mlp_bias=False, pretraining_tp=1, residual_dropout=0.1,
    ),
    "exaone4": dict(
        architectures=["Exaone4ForCausalLM"], model_type="exaone4", hidden_size=48, intermediate_size=84,
        num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=16, sliding_window=23,
        sliding_window_pattern="LLLG", layer_types=["sliding_attention"] * 3 + ["full_attention"],
    ),
    "hunyuan_v1_dense": dict(
        architectures=["HunYuanDenseV1ForCausalLM"], model_type="hunyuan_v1_dense", hidden_size=48,
        intermediate_size=80, num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=False,
        use_qk_norm=True, use_cla=False, cla_share_factor=2, norm_type="rms", attention_head_dim=16,
    ),
    "arcee": dict(
        architectures=["ArceeForCausalLM"], model_type="arcee", hidden_size=48, intermediate_size=100,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, hidden_act="relu2", attention_bias=False,
        mlp_bias=False,
    ),
    "mixtral": dict(
        architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=40, intermediate_size=56,
        num_attention_heads=5, num_key_value_heads=1, head_dim=16, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=None,
    ),
    "qwen2_moe": dict(
        architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=6, head_dim=16, moe_intermediate_size=20, num_experts=6,
        shared_expert_intermediate_size=52, num_experts_per_tok=3, norm_topk_prob=False, decoder_sparse_step=1,
        mlp_only_layers=[], qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=2,
    ),
    "qwen3_moe": dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=False, moe_intermediate_size=36,
        num_experts=12, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        use_sliding_window=False, sliding_window=None, max_window_layers=2,
    ),
    "ernie4_5_moe": dict(
        architectures=["Ernie4_5_MoeForCausalLM"], model_type="ernie4_5_moe", hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, use_bias=False, tie_word_embeddings=True,
        moe_num_experts=10, moe_k=3, moe_intermediate_size=24, moe_num_shared_experts=2, moe_layer_start_index=1,
        moe_layer_end_index=-1, moe_layer_interval=1, moe_norm_min=1e-12,
    ),
    "olmoe": dict(
        architectures=["OlmoeForCausalLM"], model_type="olmoe", hidden_size=64, intermediate_size=28,
        num_attention_heads=4, num_key_value_heads=2, num_experts=9, num_experts_per_tok=4, norm_topk_prob=False,
        attention_bias=False, clip_qkv=None,
    ),
    "glm4_moe": dict(
        architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=3, head_dim=32, partial_rotary_factor=0.5, attention_bias=True,
        moe_intermediate_size=20, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, n_group=4,
        topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True,
        num_nextn_predict_layers=1,
    ),
    "glm4_moe_lite": dict(
        architectures=["Glm4MoeLiteForCausalLM"], model_type="glm4_moe_lite", hidden_size=56, intermediate_size=80,
        num_attention_heads=5, num_key_value_heads=5, q_lora_rank=36, kv_lora_rank=48, qk_nope_head_dim=24,
        qk_rope_head_dim=16, v_head_dim=40, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=28, n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1, n_group=1,
        topk_group=1, routed_scaling_factor=1.8, norm_topk_prob=True, topk_method="noaux_tc", partial_rotary_factor=1.0,
        num_nextn_predict_layers=1, rms_norm_eps=1e-5,
    ),
    "dots1": dict(
        architectures=["Dots1ForCausalLM"], model_type="dots1", hidden_size=56, intermediate_size=76,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=False, moe_intermediate_size=20,
        n_routed_experts=10, n_shared_experts=2, num_experts_per_tok=3, n_group=1, topk_group=1,
        routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True, moe_layer_freq=1,
        scoring_func="noaux_tc", sliding_window=None, max_window_layers=2,
    ),
    "solar_open": dict(
        architectures=["SolarOpenForCausalLM"], model_type="solar_open", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, attention_bias=False, moe_intermediate_size=28,
        n_routed_experts=9, n_shared_experts=1, num_experts_per_tok=4, n_group=1, topk_group=1,
        routed_scaling_factor=1.0, first_k_dense_replace=0, norm_topk_prob=True, partial_rotary_factor=1.0,
    ),
    "minimax_m2": dict(
        architectures=["MiniMaxM2ForCausalLM"], model_type="minimax_m2", hidden_size=56, intermediate_size=36,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, rotary_dim=16, num_local_experts=9,
        num_experts_per_tok=4, scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True,
        qk_norm_type="per_layer", attn_type_list=[1, 1], shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3,
        mlp_intermediate_size=112, layernorm_mlp_beta=1.0,
    ),
    "hy_v3": dict(
        architectures=["HYV3ForCausalLM"], model_type="hy_v3", hidden_size=48, intermediate_size=68,
        num_attention_heads=5, num_key_value_heads=5, head_dim=16, attention_bias=False, mlp_bias=False,
        moe_intermediate_size=36, num_experts=11, num_experts_per_tok=4, num_shared_experts=1,
        router_scaling_factor=2.8, enable_moe_fp32_combine=True, mlp_layer_types=["dense", "sparse"],
        rms_norm_eps=1e-5,
    ),
    "deepseek_v2": dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", hidden_size=64, intermediate_size=96,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32,
        qk_rope_head_dim=16, v_head_dim=24, attention_bias=False, first_k_dense_replace=1, moe_intermediate_size=20,
        n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy",
        routed_scaling_factor=1.0, norm_topk_prob=False,
    ),
    "deepseek_v3": dict(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", hidden_size=56, intermediate_size=88,
        num_attention_heads=6, num_key_value_heads=6, q_lora_rank=40, kv_lora_rank=80, qk_nope_head_dim=16,
        qk_rope_head_dim=32, v_head_dim=28, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True, num_nextn_predict_layers=1,
    ),
    "youtu": dict(
        architectures=["YoutuForCausalLM"], model_type="youtu", hidden_size=56, intermediate_size=96,
        num_attention_heads=6, num_key_value_heads=6, q_lora_rank=40, kv_lora_rank=48, qk_nope_head_dim=24,
        qk_rope_head_dim=16, v_head_dim=20, rope_interleave=True, attention_bias=False, tie_word_embeddings=True,
    ),
    "olmo2": dict(
        architectures=["Olmo2ForCausalLM"], model_type="olmo2", hidden_size=80, intermediate_size=104,
        num_attention_heads=5, num_key_value_heads=5, attention_bias=False,
    ),
    "granite": dict(
        architectures=["GraniteForCausalLM"], model_type="granite", hidden_size=64, intermediate_size=88,
        num_attention_heads=4, num_key_value_heads=2, attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
        embedding_multiplier=12.0, logits_scaling=3.0, residual_multiplier=0.22, attention_multiplier=0.11,
    ),
    "olmo3": dict(
        architectures=["Olmo3ForCausalLM"], model_type="olmo3", hidden_size=80, intermediate_size=104,
        num_attention_heads=5, num_key_value_heads=5, attention_bias=False, num_hidden_layers=4, sliding_window=11,
    ),
    "glm": dict(
        architectures=["GlmForCausalLM"], model_type="glm", hidden_size=64, intermediate_size=76,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=True, rms_norm_eps=1.5625e-7,
        pad_token_id=0,
    ),
    "glm4": dict(
        architectures=["Glm4ForCausalLM"], model_type="glm4", hidden_size=64, intermediate_size=76,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=False, pad_token_id=0,
    ),
    "gemma": dict(
        architectures=["GemmaForCausalLM"], model_type="gemma", hidden_size=72, intermediate_size=108,
        num_attention_heads=4, num_key_value_heads=1, head_dim=32, hidden_act="gelu", tie_word_embeddings=True,
    ),
    "gemma2": dict(
        architectures=["Gemma2ForCausalLM"], model_type="gemma2", hidden_size=72, intermediate_size=108,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, query_pre_attn_scalar=24, sliding_window=11,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=False,
    ),
    "vaultgemma": dict(
        architectures=["VaultGemmaForCausalLM"], model_type="vaultgemma", hidden_size=72, intermediate_size=108,
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True, query_pre_attn_scalar=16, sliding_window=11, attn_logit_softcapping=5.0,
        final_logit_softcapping=30.0, attention_bias=False,
    ),
    "gemma3_text": dict(
        architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", hidden_size=72, intermediate_size=108,
        num_attention_heads=4, num_key_value_heads=1, head_dim=32, hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True, query_pre_attn_scalar=24, sliding_window=11, attention_bias=False,
        num_hidden_layers=7, attn_logit_softcapping=None, final_logit_softcapping=None,
    ),
    "gemma4_text": dict(
        architectures=["Gemma4ForCausalLM"], model_type="gemma4_text", hidden_size=72, intermediate_size=52,
        num_attention_heads=4, num_key_value_heads=1, head_dim=16, global_head_dim=48, sliding_window=11,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, attention_bias=False, num_hidden_layers=7,
        layer_types=["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"],
        num_kv_shared_layers=3, use_double_wide_mlp=True, attention_k_eq_v=False, hidden_size_per_layer_input=20,
        vocab_size_per_layer_input=307, final_logit_softcapping=30.0, use_bidirectional_attention=None, pad_token_id=0,
    ),
    "granitemoehybrid": dict(
        architectures=["GraniteMoeHybridForCausalLM"], model_type="granitemoehybrid", hidden_size=64,
        intermediate_size=88, shared_intermediate_size=88, num_attention_heads=4, num_key_value_heads=2,
        attention_bias=False, tie_word_embeddings=True, embedding_multiplier=12.0, logits_scaling=3.0,
        residual_multiplier=0.22, attention_multiplier=0.11, num_local_experts=0, num_experts_per_tok=0,
        position_embedding_type="rope", layer_types=["full_attention"] * 2,
    ),
    "cohere": dict(
        architectures=["CohereForCausalLM"], model_type="cohere", hidden_size=64, intermediate_size=88,
        num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=1e-6, logit_scale=0.3, use_qk_norm=False,
        attention_bias=False, tie_word_embeddings=True,
    ),
    "cohere2": dict(
        architectures=["Cohere2ForCausalLM"], model_type="cohere2", hidden_size=64, intermediate_size=88,
        num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=1e-6, logit_scale=0.3, sliding_window=11,
        attention_bias=False, tie_word_embeddings=True, num_hidden_layers=4,
    ),
    "stablelm": dict(
        architectures=["StableLmForCausalLM"], model_type="stablelm", hidden_size=128, intermediate_size=88,
        num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=1e-6, use_qkv_bias=True, qk_layernorm=False,
        use_parallel_residual=False,
    ),
    "phi": dict(
        architectures=["PhiForCausalLM"], model_type="phi", hidden_size=96, intermediate_size=88,
        num_attention_heads=3, num_key_value_heads=3, layer_norm_eps=1e-6, hidden_act="gelu_new", qk_layernorm=False,
    ),
    "nemotron": dict(
        architectures=["NemotronForCausalLM"], model_type="nemotron", hidden_size=64, intermediate_size=90,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, norm_eps=1e-6, hidden_act="relu2",
        attention_bias=False, mlp_bias=False,
    ),
    "jais2": dict(
        architectures=["Jais2ForCausalLM"], model_type="jais2", hidden_size=64, intermediate_size=90,
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, hidden_act="relu2", attention_bias=True,
        mlp_bias=True, layer_norm_eps=1e-6,
    ),
    "starcoder2": dict(
        architectures=["Starcoder2ForCausalLM"], model_type="starcoder2", hidden_size=64, intermediate_size=90,
        num_attention_heads=4, num_key_value_heads=2, hidden_act="gelu_pytorch_tanh", use_bias=True,
        norm_epsilon=1e-6, tie_word_embeddings=True, sliding_window=None,
    ),
    "gpt_oss": dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=96, intermediate_size=64,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, attention_bias=True,
        num_local_experts=6, num_experts_per_tok=3, sliding_window=13, swiglu_limit=0.8,
    ),
    **HYBRIDS,
}  # fmt: skip
# Figures of rotary positions without which transformers' class can't compute.
ROPE: dict[str, dict[str, Any]] = {
    "ministral3": {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 40},
    "gemma4_text": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
}
# The base of rotary angles, where it isn't 10,000.
THETA = {
    **dict.fromkeys(("olmo3", "cohere"), 500_000.0), **dict.fromkeys(("gemma3_text", "gemma4_text"), 1_000_000.0),
    "hy_v3": 11_158_840.0, "minimax_m2": 5_000_000.0, "solar_open": 1_000_000.0, "ernie4_5": 500_000.0,
    "ernie4_5_moe": 500_000.0, "gpt_oss": 150_000.0, "mixtral": 1_000_000.0, "smollm3": 2_000_000.0,
    "qwen3": 1_000_000.0, "lfm2": 1_000_000.0, "lfm2_moe": 1_000_000.0,
}  # fmt: skip
TWO_ROPES = ("olmo3", "gemma3_text", "gemma4_text")


ABSENT = object()


def change_config(folder: Path, **changes: Any) -> Path:
    """Set keys of a model's config.json, or take away those that are to be absent."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ABSENT}))
    return folder


def class_of(family: str) -> type:
    """Transformers' class of a family's configs."""
    from transformers import AutoConfig

    return type(AutoConfig.for_model(family))


def described(config: ModelConfig) -> ModelConfig:
    """Without the figures of rotary positions as they were given: what they amount to stands beside them."""
    ropes = tuple(dataclasses.replace(rope, figures={}) for rope in config.ropes.ropes)
    return dataclasses.replace(config, ropes=dataclasses.replace(config.ropes, ropes=ropes))
