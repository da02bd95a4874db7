"""The configs of tiny models whose layers mostly keep a state in place of keys and values, and such layers' tensors."""

from typing import Any

HYBRIDS: dict[str, dict[str, Any]] = {
    "qwen3_next": dict(
        architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", hidden_size=48, intermediate_size=72,
        num_hidden_layers=3, full_attention_interval=2, num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        partial_rotary_factor=0.25, attention_bias=False, linear_conv_kernel_dim=4, linear_key_head_dim=16,
        linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=20,
        shared_expert_intermediate_size=28, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[],
    ),
    "qwen3_5_text": dict(
        architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", hidden_size=56, intermediate_size=76,
        num_hidden_layers=3, full_attention_interval=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        attention_bias=False, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=4, attn_output_gate=True, mamba_ssm_dtype="float32",
        mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
    ),
    "qwen3_5_moe_text": dict(
        architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", hidden_size=48, num_hidden_layers=3,
        full_attention_interval=2, num_attention_heads=4, num_key_value_heads=1, head_dim=32, attention_bias=False,
        linear_conv_kernel_dim=3, linear_key_head_dim=24, linear_value_head_dim=16, linear_num_key_heads=3,
        linear_num_value_heads=3, moe_intermediate_size=28, shared_expert_intermediate_size=20, num_experts=9,
        num_experts_per_tok=4,
    ),
    "lfm2": dict(
        architectures=["Lfm2ForCausalLM"], model_type="lfm2", hidden_size=64, num_hidden_layers=3, norm_eps=1e-5,
        rms_norm_eps=1e-5, num_attention_heads=4, num_key_value_heads=2, full_attn_idxs=[1], conv_L_cache=3,
        conv_bias=False, block_ff_dim=140, block_ffn_dim_multiplier=1.0, block_multiple_of=16,
        block_auto_adjust_ff_dim=True, block_use_swiglu=True, block_norm_eps=1e-5, conv_dim=64, use_pos_enc=True,
        tie_embedding=True,
        tie_word_embeddings=True,
    ),
    "lfm2_moe": dict(
        architectures=["Lfm2MoeForCausalLM"], model_type="lfm2_moe", hidden_size=48, intermediate_size=72,
        num_hidden_layers=3, norm_eps=1e-5, rms_norm_eps=1e-5, num_attention_heads=3, num_key_value_heads=1,
        layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False,
        moe_intermediate_size=20, num_dense_layers=1, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True,
        routed_scaling_factor=1.0, use_expert_bias=True, tie_word_embeddings=True,
    ),
}  # fmt: skip
_LFM2 = ("lfm2", "lfm2_moe")
Shapes = dict[str, tuple[int, ...]]


def is_gated(config: dict[str, Any]) -> bool:
    """Whether a gate stands behind each query of attention."""
    return "linear_num_value_heads" in config


def mixer_projections(config: dict[str, Any], layer: int) -> dict[str, tuple[int, int]]:
    """Of one layer: outputs, inputs; empty where it has attention."""
    hidden = config["hidden_size"]
    if _is_convolution(config, layer):
        return {"conv.in_proj": (3 * hidden, hidden), "conv.out_proj": (hidden, hidden)}
    if not _is_delta_net(config, layer):
        return {}
    heads, keys, values = config["linear_num_value_heads"], _keys(config), _values(config)
    if config["model_type"] == "qwen3_next":
        inner = {"in_proj_qkvz": 2 * (keys + values), "in_proj_ba": 2 * heads}
    else:
        inner = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": heads, "in_proj_a": heads}
    shapes = {f"linear_attn.{name}": (outputs, hidden) for name, outputs in inner.items()}
    return shapes | {"linear_attn.out_proj": (hidden, values)}


def mixer_vectors(config: dict[str, Any], layer: int) -> Shapes:
    """The other tensors."""
    if _is_convolution(config, layer):
        channels = config["hidden_size"]
        biases: Shapes = {"conv.conv.bias": (channels,)} if config["conv_bias"] else {}
        return {"conv.conv.weight": (channels, 1, config["conv_L_cache"])} | biases
    if not _is_delta_net(config, layer):
        return {}
    heads, width = config["linear_num_value_heads"], config["linear_conv_kernel_dim"]
    return {
        "linear_attn.conv1d.weight": (2 * _keys(config) + _values(config), 1, width),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (config["linear_value_head_dim"],),
    }


def inner_size(config: dict[str, Any]) -> int:
    """Of a dense MLP; 0 where a model has none."""
    size: int = config.get("block_ff_dim", config.get("intermediate_size", 0))
    if config.get("block_auto_adjust_ff_dim"):
        size = int(2 * size / 3)
        if config["block_ffn_dim_multiplier"] is not None:
            multiple = config["block_multiple_of"]
            size = -(-int(config["block_ffn_dim_multiplier"] * size) // multiple) * multiple
    return size


def named_as_published(config: dict[str, Any], name: str) -> str:
    """A tensor as its family calls it."""
    if config["model_type"] not in _LFM2:
        return name
    for plain, own in _LFM2_NAMES.items():
        name = name.replace(plain, own)
    return name


_LFM2_NAMES = {
    "input_layernorm": "operator_norm", "post_attention_layernorm": "ffn_norm", "model.norm": "model.embedding_norm",
    "q_norm": "q_layernorm", "k_norm": "k_layernorm", "o_proj": "out_proj", "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
}  # fmt: skip


def _is_convolution(config: dict[str, Any], layer: int) -> bool:
    if config["model_type"] not in _LFM2:
        return False
    kinds, attending = config.get("layer_types"), config.get("full_attn_idxs")
    return kinds[layer] == "conv" if kinds else attending is not None and layer not in attending


def _is_delta_net(config: dict[str, Any], layer: int) -> bool:
    if "linear_num_value_heads" not in config:
        return False
    kinds = config.get("layer_types")
    return kinds[layer] == "linear_attention" if kinds else bool((layer + 1) % config.get("full_attention_interval", 4))


def _keys(config: dict[str, Any]) -> int:
    return int(config["linear_num_key_heads"] * config["linear_key_head_dim"])


def _values(config: dict[str, Any]) -> int:
    return int(config["linear_num_value_heads"] * config["linear_value_head_dim"])
