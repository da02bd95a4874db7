"""Shapes of mixtures of experts that `scripts/benchmark peers` compares, as published but with fewer layers."""

from .shape import Shape

MIXTURES = {
    "qwen3-30b": Shape(
        "Qwen3-30B-A3B", 48,
        {
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
            "intermediate_size": 6144, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4,
            "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
            "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151_936,
            "rope_theta": 1e6, "rms_norm_eps": 1e-6, "max_position_embeddings": 40_960, "tie_word_embeddings": False,
        },
        "qwen3moe", experts=128, chosen=8, width=768, norms=("attn_q_norm", "attn_k_norm", 128, 128),
        keys={"expert_feed_forward_length": 768},
    ),
    "olmoe": Shape(
        "OLMoE-1B-7B", 16,
        {
            "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_size": 2048,
            "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
            "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False, "vocab_size": 50_304,
            "rope_theta": 10_000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        "olmoe", experts=64, chosen=8, width=1024, norms=("attn_q_norm", "attn_k_norm", 2048, 2048),
    ),
    "ernie-21b": Shape(
        "ERNIE-4.5-21B-A3B", 28,
        {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 2560,
            "intermediate_size": 12_288, "num_hidden_layers": 8, "num_attention_heads": 20, "num_key_value_heads": 4,
            "head_dim": 128, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536,
            "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 1, "use_bias": False,
            "vocab_size": 103_424, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
        },
        "ernie4_5-moe", experts=64, chosen=6, width=1536, shared_width=3072, dense_layers=1,
        keys={
            "expert_feed_forward_length": 1536, "expert_shared_feed_forward_length": 3072, "expert_shared_count": 2,
            "interleave_moe_layer_step": 1, "leading_dense_block_count": 1,
        },
    ),
    "gpt-oss-20b": Shape(
        "gpt-oss-20b", 24,
        {
            "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
            "intermediate_size": 2880, "num_hidden_layers": 6, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "attention_bias": True,
            "sliding_window": 128, "vocab_size": 201_088, "rope_theta": 150_000.0, "rms_norm_eps": 1e-5,
            "layer_types": ["sliding_attention", "full_attention"] * 3, "swiglu_limit": 7.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096,
            },
            "max_position_embeddings": 131_072, "tie_word_embeddings": False,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
                ],
            },
        },
        "gpt-oss", experts=32, chosen=4, width=2880, has_biases=True,
        layer_norms=("attn_norm", "post_attention_norm"),
        keys={
            "expert_feed_forward_length": 2880, "attention.sliding_window": 128, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
        },
    ),
    "deepseek-v2-lite": Shape(
        "DeepSeek-V2-Lite", 27,
        {
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
            "intermediate_size": 10_944, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
            "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
            "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "norm_topk_prob": False,
            "routed_scaling_factor": 1.0, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
            "vocab_size": 102_400, "rope_theta": 10_000.0, "rms_norm_eps": 1e-6,
            "rope_scaling": {
                "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
            },
            "max_position_embeddings": 163_840, "tie_word_embeddings": False,
        },
        "deepseek2", experts=64, chosen=6, width=1408, shared_width=2816, dense_layers=1,
        keys={
            "expert_feed_forward_length": 1408, "expert_shared_count": 2, "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0, "expert_weights_norm": False, "expert_gating_func": 1,
            # Latents as one key and value for all heads, the form that it computes answers in.
            "attention.head_count_kv": 1, "attention.kv_lora_rank": 512, "attention.key_length": 576,
            "attention.value_length": 512, "attention.key_length_mla": 192, "attention.value_length_mla": 128,
            "attention.q_lora_rank": 0, "rope.dimension_count": 64, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096,
            "rope.scaling.yarn_log_multiplier": 0.0707,
        },
    ),
}  # fmt: skip
