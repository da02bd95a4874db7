"""Rows of mixtures of experts."""

from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .common import (
    Config,
    attention_bias,
    dense_before_sparse,
    experts,
    layer_types,
    named,
    rotated_part,
    sparse_layers,
)
from .metadata import ModelMetadata
from .rope import stretches_by_yarn, yarn

_SIGMOID = 2  # llama.cpp's number for it


def qwen2_moe(given: ModelMetadata) -> Config:
    """llama.cpp doesn't renormalise what the chosen experts got."""
    shared = given.count("expert_shared_feed_forward_length", 0)
    own = {"shared_expert_intermediate_size": shared, "norm_topk_prob": False}
    bias = given.has_in_any_layer("attn_q.bias")
    return named("Qwen2MoeForCausalLM", "qwen2_moe", qkv_bias=bias, **own, **experts(given), **dense_layers(given))


def qwen3_moe(given: ModelMetadata) -> Config:
    own = {"norm_topk_prob": True, **attention_bias(given)}
    return named("Qwen3MoeForCausalLM", "qwen3_moe", **own, **experts(given), **dense_layers(given))


def dense_layers(given: ModelMetadata) -> Config:
    """As Qwen's configs say it."""
    sparse = sparse_layers(given)
    return {"decoder_sparse_step": 1, "mlp_only_layers": [layer for layer, each in enumerate(sparse) if not each]}


def ernie4_5_moe(given: ModelMetadata) -> Config:
    step = given.count("interleave_moe_layer_step", 1) or 1
    sparse = sparse_layers(given)
    numbers = [layer for layer, each in enumerate(sparse) if each]
    if not numbers or numbers != [layer for layer in range(numbers[0], numbers[-1] + 1) if (layer + 1) % step == 0]:
        raise MalformedError("has experts in other layers than its metadata says")
    return named(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        use_bias=given.has_in_any_layer("attn_q.bias"),
        moe_num_experts=given.count("expert_count"),
        moe_k=given.count("expert_used_count"),
        moe_intermediate_size=given.count("expert_feed_forward_length"),
        moe_num_shared_experts=given.count("expert_shared_count", 0),
        moe_layer_start_index=numbers[0],
        moe_layer_end_index=numbers[-1],
        moe_layer_interval=step,
    )


def olmoe(given: ModelMetadata) -> Config:
    """Its configs call the width of an expert that of the MLP."""
    own = {"norm_topk_prob": False, **experts(given, width="intermediate_size")}
    return named("OlmoeForCausalLM", "olmoe", **own, **attention_bias(given))


def routed(given: ModelMetadata) -> Config:
    """As the configs of DeepSeek and GLM say it."""
    return {
        **experts(given, "n_routed_experts"),
        "n_shared_experts": given.count("expert_shared_count", 0),
        "routed_scaling_factor": given.number("expert_weights_scale", 0.0) or 1.0,
        "norm_topk_prob": given.flag("expert_weights_norm", False),
        "n_group": given.count("expert_group_count", 0) or 1,
        "topk_group": given.count("expert_group_used_count", 0) or 1,
        "first_k_dense_replace": dense_before_sparse(given),
    }


def require_sigmoid(given: ModelMetadata) -> None:
    if given.count("expert_gating_func", _SIGMOID) not in (0, _SIGMOID):
        raise MalformedError("chooses experts by another function than a sigmoid, which its family hasn't", UNSUPPORTED)


def uses_sigmoid(given: ModelMetadata) -> bool:
    return given.count("expert_gating_func", 0) == _SIGMOID


def glm4_moe(given: ModelMetadata) -> Config:
    """Also Solar Open, which is the same without norms of queries and keys."""
    require_sigmoid(given)
    own = {"use_qk_norm": given.has_in_any_layer("attn_q_norm.weight"), **attention_bias(given)}
    return named("Glm4MoeForCausalLM", "glm4_moe", **own, **rotated_part(given), **routed(given))


def dots1(given: ModelMetadata) -> Config:
    require_sigmoid(given)
    return named("Dots1ForCausalLM", "dots1", sliding_window=None, **attention_bias(given), **routed(given))


def minimax_m2(given: ModelMetadata) -> Config:
    require_sigmoid(given)
    own = {"rotary_dim": given.count("rope.dimension_count", given.count("attention.key_length", 0))}
    own |= experts(given, "num_local_experts", "intermediate_size")
    return named("MiniMaxM2ForCausalLM", "minimax_m2", **own)


def hy_v3(given: ModelMetadata) -> Config:
    require_sigmoid(given)
    width = given.count("expert_feed_forward_length")
    shared = given.count("expert_shared_feed_forward_length", width)
    if width == 0 or shared % width:
        raise MalformedError("has shared experts whose width is no multiple of an expert's")
    return named(
        "HYV3ForCausalLM",
        "hy_v3",
        num_shared_experts=shared // width,
        router_scaling_factor=given.number("expert_weights_scale", 1.0),
        mlp_layer_types=["sparse" if each else "dense" for each in sparse_layers(given)],
        **experts(given),
        **attention_bias(given),
    )


def gpt_oss(given: ModelMetadata) -> Config:
    """YaRN's figures are those of its published configs, which llama.cpp takes as its own defaults."""
    own = experts(given, "num_local_experts", "intermediate_size")
    figures: Config = {"rope_type": "default"}
    if stretches_by_yarn(given):
        figures = {**yarn(given), "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    figures["rope_theta"] = given.number("rope.freq_base", 150_000.0)
    own |= {"rope_parameters": figures, "rope_scaling": None}
    return named("GptOssForCausalLM", "gpt_oss", **own, **attention_bias(given), **layer_types(given, 2))
