"""Configs of models whose layers mostly keep states, with the keys and values that they were published with."""

from typing import Any

_DELTA_NET: dict[str, Any] = dict(
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16, linear_value_head_dim=128,
)  # fmt: skip


def _of_pictures(width: int) -> dict[str, Any]:
    return dict(
        image_token_id=248056, video_token_id=248057, vision_start_token_id=248053, vision_end_token_id=248054,
        vision_config=dict(
            deepstack_visual_indexes=[], depth=27, hidden_act="gelu_pytorch_tanh", hidden_size=1152, in_channels=3,
            initializer_range=0.02, intermediate_size=4304, model_type="qwen3_5", num_heads=16,
            num_position_embeddings=2304, out_hidden_size=width, patch_size=16, spatial_merge_size=2,
            temporal_patch_size=2,
        ),
    )  # fmt: skip


_ROPE = dict(
    mrope_interleaved=True, mrope_section=[11, 11, 10], rope_type="default", rope_theta=10_000_000,
    partial_rotary_factor=0.25,
)  # fmt: skip


def _kinds(num_layers: int) -> list[str]:
    return [("full_attention" if number % 4 == 3 else "linear_attention") for number in range(num_layers)]


def _text(num_layers: int, **own: Any) -> dict[str, Any]:
    return dict(
        attention_bias=False, attention_dropout=0.0, attn_output_gate=True, dtype="bfloat16", eos_token_id=248044,
        full_attention_interval=4, head_dim=256, hidden_act="silu", initializer_range=0.02,
        layer_types=_kinds(num_layers), linear_num_value_heads=32, **_DELTA_NET, mamba_ssm_dtype="float32",
        max_position_embeddings=262_144, mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
        num_attention_heads=16, num_hidden_layers=num_layers, num_key_value_heads=4, rms_norm_eps=1e-6, use_cache=True,
        vocab_size=248_320, rope_parameters=_ROPE,
    ) | own  # fmt: skip


_EXPERTS: dict[str, Any] = dict(
    model_type="qwen3_5_moe_text", hidden_size=2048, num_key_value_heads=2, moe_intermediate_size=512, num_experts=256,
    num_experts_per_tok=8, router_aux_loss_coef=0.001, shared_expert_intermediate_size=512, output_router_logits=False,
)  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen3-Next-80B-A3B-Instruct": dict(
        architectures=["Qwen3NextForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=151_643,
        decoder_sparse_step=1, eos_token_id=151_645, full_attention_interval=4, head_dim=256, hidden_act="silu",
        hidden_size=2048, initializer_range=0.02, intermediate_size=5120, **_DELTA_NET, linear_num_value_heads=32,
        max_position_embeddings=262_144, mlp_only_layers=[], model_type="qwen3_next", moe_intermediate_size=512,
        norm_topk_prob=True, num_attention_heads=16, num_experts=512, num_experts_per_tok=10, num_hidden_layers=48,
        num_key_value_heads=2, output_router_logits=False, partial_rotary_factor=0.25, rms_norm_eps=1e-6,
        rope_scaling=None, rope_theta=10_000_000, router_aux_loss_coef=0.001, shared_expert_intermediate_size=512,
        tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.57.0.dev0", use_cache=True,
        use_sliding_window=False, vocab_size=151_936,
    ),
    "Qwen3.5-4B": dict(
        architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", **_of_pictures(2560),
        text_config=_text(
            32, model_type="qwen3_5_text", hidden_size=2560, intermediate_size=9216, mlp_only_layers=[],
            tie_word_embeddings=True,
        ),
        tie_word_embeddings=True, transformers_version="4.57.0.dev0",
    ),
    "Qwen3.5-35B-A3B": dict(
        architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", **_of_pictures(2048),
        text_config=_text(40, **_EXPERTS, mlp_only_layers=[]),
        tie_word_embeddings=False, transformers_version="4.57.0.dev0",
    ),
    "Qwen3.6-27B": dict(
        architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", language_model_only=False,
        **_of_pictures(5120),
        text_config=_text(
            64, model_type="qwen3_5_text", hidden_size=5120, intermediate_size=17_408, num_attention_heads=24,
            linear_num_value_heads=48, output_gate_type="swish", partial_rotary_factor=0.25, bos_token_id=248_044,
            pad_token_id=None, tie_word_embeddings=False,
        ),
        tie_word_embeddings=False, transformers_version="5.2.0",
    ),
    "Qwen3.6-35B-A3B": dict(
        architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", language_model_only=False,
        **_of_pictures(2048),
        text_config=_text(40, **_EXPERTS, output_gate_type="swish", partial_rotary_factor=0.25, pad_token_id=None),
        tie_word_embeddings=False, transformers_version="5.2.0",
    ),
    "LFM2-1.2B": dict(
        architectures=["Lfm2ForCausalLM"], block_auto_adjust_ff_dim=True, block_dim=2048, block_ff_dim=12_288,
        block_ffn_dim_multiplier=1.0, block_mlp_init_scale=1.0, block_multiple_of=256, block_norm_eps=1e-5,
        block_out_init_scale=1.0, block_use_swiglu=True, block_use_xavier_init=True, bos_token_id=1, conv_L_cache=3,
        conv_bias=False, conv_dim=2048, conv_dim_out=2048, conv_use_xavier_init=True, eos_token_id=7,
        full_attn_idxs=[2, 5, 8, 10, 12, 14], hidden_size=2048, initializer_range=0.02, max_position_embeddings=128_000,
        model_type="lfm2", norm_eps=1e-5, num_attention_heads=32, num_heads=32, num_hidden_layers=16,
        num_key_value_heads=8, pad_token_id=0, rope_theta=1_000_000.0, torch_dtype="bfloat16",
        transformers_version="4.54.0.dev0", use_cache=True, use_pos_enc=True, vocab_size=65_536,
    ),
    "LFM2-8B-A1B": dict(
        architectures=["Lfm2MoeForCausalLM"], bos_token_id=1, conv_L_cache=3, conv_bias=False, dtype="bfloat16",
        eos_token_id=7, hidden_size=2048, initializer_range=0.02, intermediate_size=7168,
        layer_types=[
            "full_attention" if number in (2, 6, 10, 14, 18, 21) else "conv" for number in range(24)
        ],
        max_position_embeddings=128_000, model_type="lfm2_moe", moe_intermediate_size=1792, norm_eps=1e-5,
        norm_topk_prob=True, num_attention_heads=32, num_dense_layers=2, num_experts=32, num_experts_per_tok=4,
        num_hidden_layers=24, num_key_value_heads=8, pad_token_id=0, rope_theta=1_000_000.0, routed_scaling_factor=1.0,
        transformers_version="4.57.0.dev0", use_cache=True, use_expert_bias=True, vocab_size=65_536,
    ),
}  # fmt: skip

# What a model that a test can hold has in place of the published numbers, where it has them at all.
_SMALL: dict[str, Any] = dict(
    hidden_size=64, intermediate_size=80, num_hidden_layers=4, num_attention_heads=4, head_dim=32, vocab_size=307,
    linear_key_head_dim=16, linear_num_key_heads=2, linear_value_head_dim=24, num_experts=8, num_experts_per_tok=3,
    moe_intermediate_size=20, shared_expert_intermediate_size=28, initializer_range=0.2, block_dim=64, conv_dim=64,
    conv_dim_out=64, block_ff_dim=120, block_multiple_of=16, num_heads=4,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
_SMALL_PICTURES = dict(
    depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=64, num_position_embeddings=16
)


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The same keys and odd values, with sizes that a test can hold."""
    found = config | {key: value for key, value in _SMALL.items() if key in config}
    if "linear_num_value_heads" in config:  # as many to a key head as published
        found["linear_num_value_heads"] = 2 * config["linear_num_value_heads"] // config["linear_num_key_heads"]
    if "num_key_value_heads" in config:
        found["num_key_value_heads"] = 2 if config["num_key_value_heads"] > 2 else 1
    if "layer_types" in config:
        found["layer_types"] = config["layer_types"][:4]
    if "text_config" in config:
        found |= {"text_config": shrunk(config["text_config"])}
        found |= {"vision_config": config["vision_config"] | _SMALL_PICTURES}
    return found
