"""Rows of families of which most layers keep a state: gated delta nets, and short convolutions."""

from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .common import FULL, Config, attention_bias, dense_before_sparse, experts, named, rotated_part
from .metadata import ModelMetadata
from .mixtures import dense_layers, require_sigmoid

_USUAL_INTERVAL = 4


def qwen3_next(given: ModelMetadata) -> Config:
    own = {**_shared(given), "norm_topk_prob": True, **dense_layers(given)}
    return named("Qwen3NextForCausalLM", "qwen3_next", **own, **_delta_nets(given))


def qwen3_5(given: ModelMetadata) -> Config:
    return named("Qwen3_5ForCausalLM", "qwen3_5_text", **_delta_nets(given))


def qwen3_5_moe(given: ModelMetadata) -> Config:
    return named("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", **_shared(given), **_delta_nets(given))


def _shared(given: ModelMetadata) -> Config:
    width = given.count("expert_shared_feed_forward_length", 0)
    return {"shared_expert_intermediate_size": width, **experts(given)}


def _delta_nets(given: ModelMetadata) -> Config:
    inner, value_heads = given.count("ssm.inner_size"), given.count("ssm.time_step_rank")
    if value_heads == 0 or inner % value_heads:
        raise MalformedError(f"shares {inner} numbers among {value_heads} value heads")
    recurrent = given.flags("attention.recurrent_layers")
    if recurrent is None:
        every = given.count("full_attention_interval", _USUAL_INTERVAL) or _USUAL_INTERVAL
        recurrent = [(layer + 1) % every != 0 for layer in range(given.num_layers)]
    return {
        "layer_types": ["linear_attention" if each else FULL for each in recurrent],
        "linear_conv_kernel_dim": given.count("ssm.conv_kernel"),
        "linear_key_head_dim": given.count("ssm.state_size"),
        "linear_num_key_heads": given.count("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": inner // value_heads,
        **attention_bias(given),
        **rotated_part(given),
    }


def lfm2(given: ModelMetadata) -> Config:
    return named("Lfm2ForCausalLM", "lfm2", block_auto_adjust_ff_dim=False, **_convolutions(given))


def lfm2_moe(given: ModelMetadata) -> Config:
    require_sigmoid(given)
    return named(
        "Lfm2MoeForCausalLM",
        "lfm2_moe",
        num_dense_layers=dense_before_sparse(given),
        use_expert_bias=given.has_in_any_layer("exp_probs_b.bias", "exp_probs_b"),
        routed_scaling_factor=given.number("expert_weights_scale", 0.0) or 1.0,
        norm_topk_prob=True,
        **experts(given),
        **_convolutions(given),
    )


def _convolutions(given: ModelMetadata) -> Config:
    """Layers without keys convolve."""
    if given.count("attention.sliding_window", 0):
        raise MalformedError("has windows beside short convolutions, which its family hasn't", UNSUPPORTED)
    attends = [count > 0 for count in given.counts("attention.head_count_kv")]
    return {
        "layer_types": [FULL if each else "conv" for each in attends],
        "conv_L_cache": given.count("shortconv.l_cache"),
        "conv_bias": given.has_in_any_layer("shortconv.conv.bias"),
        "norm_eps": given.number("attention.layer_norm_rms_epsilon"),
    }
