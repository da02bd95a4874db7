"""Shapes of dense models that `scripts/benchmark peers` compares, whose layers keep windows or states."""

from typing import Any

from .shape import Shape

_KINDS = ["linear_attention"] * 3 + ["full_attention"]
_GEMMA3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 1152,
    "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 256, "vocab_size": 262_144, "sliding_window": 512, "sliding_window_pattern": 6, "rope_theta": 1e6,
    "rope_local_base_freq": 10_000, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 32_768, "tie_word_embeddings": True,
}  # fmt: skip
_QWEN35_4B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 2560,
    "intermediate_size": 9216, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 256, "attn_output_gate": True, "layer_types": _KINDS * 2, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128,
    "linear_num_value_heads": 32, "vocab_size": 248_320, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "rope_parameters": {
        "mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
    },
    "max_position_embeddings": 262_144, "tie_word_embeddings": True,
}  # fmt: skip
GROUPED = {
    "gemma3-1b": Shape(
        "Gemma-3-1B", 26, _GEMMA3_1B, "gemma3",
        layer_norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"),
        norms=("attn_q_norm", "attn_k_norm", 256, 256),
        keys={"attention.sliding_window": 512, "rope.freq_base_swa": 10_000.0},
    ),
    "qwen3.5-4b": Shape(
        "Qwen3.5-4B", 32, _QWEN35_4B, "qwen35", layer_norms=("attn_norm", "post_attention_norm"),
        norms=("attn_q_norm", "attn_k_norm", 256, 256), gates_attention=True,
        keys={
            "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "full_attention_interval": 4,
            "ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.time_step_rank": 32,
            "ssm.group_count": 16,
        },
    ),
}  # fmt: skip
