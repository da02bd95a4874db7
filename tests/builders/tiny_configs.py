"""The configs of tiny models, one of each family, with shapes that are odd on purpose: few heads, widths that no tile
divides, numbers of experts that nothing divides. `tiny_model.py` writes checkpoints of them.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from penstock.worker.description.config import ModelConfig

COMMON: dict[str, Any] = dict(
    vocab_size=307, num_hidden_layers=2, hidden_act="silu", max_position_embeddings=1024, rms_norm_eps=1e-6,
    tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, initializer_range=0.02, use_cache=True,
)  # fmt: skip


def _of(
    family: str, name: str, hidden: int, inner: int | None, heads: int, key_heads: int, **own: Any
) -> tuple[str, dict[str, Any]]:
    """A family's row: what its class and its config are called, its sizes, and its own keys."""
    sizes = dict(hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=key_heads)
    config = dict(architectures=[f"{name}ForCausalLM"], model_type=family, **sizes, **own)
    return family, {key: value for key, value in config.items() if key != "intermediate_size" or value is not None}


FAMILIES: dict[str, dict[str, Any]] = dict((
    _of("llama", "Llama", 48, 88, 6, 2, head_dim=16, rms_norm_eps=1e-5, attention_bias=False, mlp_bias=False),
    _of("mistral", "Mistral", 40, 72, 5, 1, head_dim=16, sliding_window=None),
    _of("qwen2", "Qwen2", 112, 100, 7, 7, sliding_window=None, use_sliding_window=False, max_window_layers=2),
    _of("qwen3", "Qwen3", 64, 112, 4, 2, head_dim=32, attention_bias=False, sliding_window=None,
        use_sliding_window=False, max_window_layers=2, tie_word_embeddings=True),
    _of("ernie4_5", "Ernie4_5", 48, 80, 6, 3, head_dim=16, use_bias=False, tie_word_embeddings=True),
    _of("smollm3", "SmolLM3", 48, 76, 6, 2, num_hidden_layers=4, head_dim=16, tie_word_embeddings=True,
        no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4, attention_bias=False, mlp_bias=False,
        use_sliding_window=False, sliding_window=None, max_window_layers=28, pretraining_tp=2, pad_token_id=0),
    _of("phi3", "Phi3", 64, 76, 4, 2, sliding_window=None, original_max_position_embeddings=1024, rms_norm_eps=1e-5,
        pad_token_id=0, partial_rotary_factor=1.0, full_attn_mod=1, interpolate_factor=1),
    _of("internlm3", "InternLM3", 48, 84, 6, 3, head_dim=16, attention_bias=False, mlp_bias=False),
    _of("ministral", "Ministral", 56, 88, 6, 2, head_dim=16, sliding_window=40,
        layer_types=["full_attention", "sliding_attention"]),
    _of("ministral3", "Ministral3", 40, 72, 4, 1, head_dim=32, sliding_window=None, pad_token_id=0),
    _of("seed_oss", "SeedOss", 48, 92, 5, 1, head_dim=16, attention_bias=True, attention_out_bias=False, mlp_bias=False,
        pretraining_tp=1, residual_dropout=0.1),
    _of("exaone4", "Exaone4", 48, 84, 6, 2, num_hidden_layers=4, head_dim=16, sliding_window=23,
        sliding_window_pattern="LLLG", layer_types=["sliding_attention"] * 3 + ["full_attention"]),
    _of("hunyuan_v1_dense", "HunYuanDenseV1", 48, 80, 6, 2, head_dim=16, attention_bias=False, use_qk_norm=True,
        use_cla=False, cla_share_factor=2, norm_type="rms", attention_head_dim=16),
    _of("arcee", "Arcee", 48, 100, 6, 3, head_dim=16, hidden_act="relu2", attention_bias=False, mlp_bias=False),
    _of("mixtral", "Mixtral", 40, 56, 5, 1, head_dim=16, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=None),
    _of("qwen2_moe", "Qwen2Moe", 48, 72, 6, 6, head_dim=16, moe_intermediate_size=20, num_experts=6,
        shared_expert_intermediate_size=52, num_experts_per_tok=3, norm_topk_prob=False, decoder_sparse_step=1,
        mlp_only_layers=[], qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=2),
    _of("qwen3_moe", "Qwen3Moe", 64, 112, 4, 2, head_dim=32, attention_bias=False, moe_intermediate_size=36,
        num_experts=12, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        use_sliding_window=False, sliding_window=None, max_window_layers=2),
    _of("ernie4_5_moe", "Ernie4_5_Moe", 48, 80, 6, 3, head_dim=16, use_bias=False, tie_word_embeddings=True,
        moe_num_experts=10, moe_k=3, moe_intermediate_size=24, moe_num_shared_experts=2, moe_layer_start_index=1,
        moe_layer_end_index=-1, moe_layer_interval=1, moe_norm_min=1e-12),
    _of("olmoe", "Olmoe", 64, 28, 4, 2, num_experts=9, num_experts_per_tok=4, norm_topk_prob=False,
        attention_bias=False, clip_qkv=None),
    _of("glm4_moe", "Glm4Moe", 48, 72, 6, 3, head_dim=32, partial_rotary_factor=0.5, attention_bias=True,
        moe_intermediate_size=20, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, n_group=4,
        topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True,
        num_nextn_predict_layers=1),
    _of("glm4_moe_lite", "Glm4MoeLite", 56, 80, 5, 5, q_lora_rank=36, kv_lora_rank=48, qk_nope_head_dim=24,
        qk_rope_head_dim=16, v_head_dim=40, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=28, n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1, n_group=1,
        topk_group=1, routed_scaling_factor=1.8, norm_topk_prob=True, topk_method="noaux_tc", partial_rotary_factor=1.0,
        num_nextn_predict_layers=1, rms_norm_eps=1e-5),
    _of("dots1", "Dots1", 56, 76, 6, 2, head_dim=16, attention_bias=False, moe_intermediate_size=20,
        n_routed_experts=10, n_shared_experts=2, num_experts_per_tok=3, n_group=1, topk_group=1,
        routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True, moe_layer_freq=1,
        scoring_func="noaux_tc", sliding_window=None, max_window_layers=2),
    _of("solar_open", "SolarOpen", 48, 72, 6, 2, head_dim=32, attention_bias=False, moe_intermediate_size=28,
        n_routed_experts=9, n_shared_experts=1, num_experts_per_tok=4, n_group=1, topk_group=1,
        routed_scaling_factor=1.0, first_k_dense_replace=0, norm_topk_prob=True, partial_rotary_factor=1.0),
    _of("minimax_m2", "MiniMaxM2", 56, 36, 6, 2, head_dim=32, rotary_dim=16, num_local_experts=9, num_experts_per_tok=4,
        scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer",
        attn_type_list=[1, 1], shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3, mlp_intermediate_size=112,
        layernorm_mlp_beta=1.0),
    _of("hy_v3", "HYV3", 48, 68, 5, 5, head_dim=16, attention_bias=False, mlp_bias=False, moe_intermediate_size=36,
        num_experts=11, num_experts_per_tok=4, num_shared_experts=1, router_scaling_factor=2.8,
        enable_moe_fp32_combine=True, mlp_layer_types=["dense", "sparse"], rms_norm_eps=1e-5),
    _of("deepseek_v2", "DeepseekV2", 64, 96, 4, 4, q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32,
        qk_rope_head_dim=16, v_head_dim=24, attention_bias=False, first_k_dense_replace=1, moe_intermediate_size=20,
        n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy",
        routed_scaling_factor=1.0, norm_topk_prob=False),
    _of("deepseek_v3", "DeepseekV3", 56, 88, 6, 6, q_lora_rank=40, kv_lora_rank=80, qk_nope_head_dim=16,
        qk_rope_head_dim=32, v_head_dim=28, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True, num_nextn_predict_layers=1),
    _of("youtu", "Youtu", 56, 96, 6, 6, q_lora_rank=40, kv_lora_rank=48, qk_nope_head_dim=24, qk_rope_head_dim=16,
        v_head_dim=20, rope_interleave=True, attention_bias=False, tie_word_embeddings=True),
    _of("olmo2", "Olmo2", 80, 104, 5, 5, attention_bias=False),
    _of("granite", "Granite", 64, 88, 4, 2, attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
        embedding_multiplier=12.0, logits_scaling=3.0, residual_multiplier=0.22, attention_multiplier=0.11),
    _of("olmo3", "Olmo3", 80, 104, 5, 5, attention_bias=False, num_hidden_layers=4, sliding_window=11),
    _of("glm", "Glm", 64, 76, 6, 2, head_dim=16, attention_bias=True, rms_norm_eps=1.5625e-7, pad_token_id=0),
    _of("glm4", "Glm4", 64, 76, 6, 2, head_dim=16, attention_bias=False, pad_token_id=0),
    _of("gemma", "Gemma", 72, 108, 4, 1, head_dim=32, hidden_act="gelu", tie_word_embeddings=True),
    _of("gemma2", "Gemma2", 72, 108, 4, 2, head_dim=32, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, query_pre_attn_scalar=24, sliding_window=11,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=False),
    _of("vaultgemma", "VaultGemma", 72, 108, 4, 4, head_dim=16, hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True, query_pre_attn_scalar=16, sliding_window=11, attn_logit_softcapping=5.0,
        final_logit_softcapping=30.0, attention_bias=False),
    _of("gemma3_text", "Gemma3", 72, 108, 4, 1, head_dim=32, hidden_activation="gelu_pytorch_tanh",
        tie_word_embeddings=True, query_pre_attn_scalar=24, sliding_window=11, attention_bias=False,
        num_hidden_layers=7, attn_logit_softcapping=None, final_logit_softcapping=None),
    _of("gemma4_text", "Gemma4", 72, 52, 4, 1, head_dim=16, global_head_dim=48, sliding_window=11,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, attention_bias=False, num_hidden_layers=7,
        layer_types=[*["sliding_attention"] * 2, "full_attention", *["sliding_attention"] * 3, "full_attention"],
        num_kv_shared_layers=3, use_double_wide_mlp=True, attention_k_eq_v=False, hidden_size_per_layer_input=20,
        vocab_size_per_layer_input=307, final_logit_softcapping=30.0, use_bidirectional_attention=None, pad_token_id=0),
    _of("granitemoehybrid", "GraniteMoeHybrid", 64, 88, 4, 2, shared_intermediate_size=88, attention_bias=False,
        tie_word_embeddings=True, embedding_multiplier=12.0, logits_scaling=3.0, residual_multiplier=0.22,
        attention_multiplier=0.11, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
        layer_types=["full_attention", "full_attention"]),
    _of("cohere", "Cohere", 64, 88, 4, 2, layer_norm_eps=1e-6, logit_scale=0.3, use_qk_norm=False, attention_bias=False,
        tie_word_embeddings=True),
    _of("cohere2", "Cohere2", 64, 88, 4, 2, layer_norm_eps=1e-6, logit_scale=0.3, sliding_window=11,
        attention_bias=False, tie_word_embeddings=True, num_hidden_layers=4),
    _of("stablelm", "StableLm", 128, 88, 4, 2, layer_norm_eps=1e-6, use_qkv_bias=True, qk_layernorm=False,
        use_parallel_residual=False),
    _of("phi", "Phi", 96, 88, 3, 3, layer_norm_eps=1e-6, hidden_act="gelu_new", qk_layernorm=False),
    _of("nemotron", "Nemotron", 64, 90, 4, 2, head_dim=32, norm_eps=1e-6, hidden_act="relu2", attention_bias=False,
        mlp_bias=False),
    _of("jais2", "Jais2", 64, 90, 4, 4, head_dim=16, hidden_act="relu2", attention_bias=True, mlp_bias=True,
        layer_norm_eps=1e-6),
    _of("starcoder2", "Starcoder2", 64, 90, 4, 2, hidden_act="gelu_pytorch_tanh", use_bias=True, norm_epsilon=1e-6,
        tie_word_embeddings=True, sliding_window=None),
    _of("gpt_oss", "GptOss", 96, 64, 6, 2, head_dim=16, rms_norm_eps=1e-5, attention_bias=True, num_local_experts=6,
        num_experts_per_tok=3, sliding_window=13, swiglu_limit=0.8),
    _of("qwen3_next", "Qwen3Next", 48, 72, 6, 2, num_hidden_layers=3, full_attention_interval=2, head_dim=32,
        partial_rotary_factor=0.25, attention_bias=False, linear_conv_kernel_dim=4, linear_key_head_dim=16,
        linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=20,
        shared_expert_intermediate_size=28, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[]),
    _of("qwen3_5_text", "Qwen3_5", 56, 76, 4, 2, num_hidden_layers=3, full_attention_interval=2, head_dim=32,
        attention_bias=False, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=4, attn_output_gate=True, mamba_ssm_dtype="float32",
        mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False),
    _of("qwen3_5_moe_text", "Qwen3_5Moe", 48, None, 4, 1, num_hidden_layers=3, full_attention_interval=2, head_dim=32,
        attention_bias=False, linear_conv_kernel_dim=3, linear_key_head_dim=24, linear_value_head_dim=16,
        linear_num_key_heads=3, linear_num_value_heads=3, moe_intermediate_size=28, shared_expert_intermediate_size=20,
        num_experts=9, num_experts_per_tok=4),
    _of("lfm2", "Lfm2", 64, None, 4, 2, num_hidden_layers=3, norm_eps=1e-5, rms_norm_eps=1e-5, full_attn_idxs=[1],
        conv_L_cache=3, conv_bias=False, block_ff_dim=140, block_ffn_dim_multiplier=1.0, block_multiple_of=16,
        block_auto_adjust_ff_dim=True, block_use_swiglu=True, block_norm_eps=1e-5, conv_dim=64, use_pos_enc=True,
        tie_embedding=True, tie_word_embeddings=True),
    _of("lfm2_moe", "Lfm2Moe", 48, 72, 3, 1, num_hidden_layers=3, norm_eps=1e-5, rms_norm_eps=1e-5,
        layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False, moe_intermediate_size=20,
        num_dense_layers=1, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True, routed_scaling_factor=1.0,
        use_expert_bias=True, tie_word_embeddings=True),
))  # fmt: skip
# Families whose layers mostly keep a state in place of keys and values.
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lfm2", "lfm2_moe")
# Keys of Gemma 4's mixture, as 26B-A4B has them.
MIXTURE = {
    "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 36,
    "attention_k_eq_v": True, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False, "hidden_size_per_layer_input": 0, "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
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
