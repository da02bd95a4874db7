"""Rows of dense families: what their configs have beside the keys of all, or in their place."""

from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .common import (
    FULL,
    SLIDING,
    Config,
    all_biases,
    attention_bias,
    experts,
    head_dim,
    layer_types,
    named,
    rotated_part,
)
from .metadata import ModelMetadata
from .rope import rope, yarn, yarn_betas


def llama(given: ModelMetadata) -> Config:
    """Also Mistral and InternLM3, which compute as Llama does, and Mixtral."""
    if given.count("expert_count", 0) > 0:
        width = experts(given, "num_local_experts", "intermediate_size")
        return named("MixtralForCausalLM", "mixtral", sliding_window=None, **width)
    return named("LlamaForCausalLM", "llama", **all_biases(given))


def mistral3(given: ModelMetadata) -> Config:
    """Ministral 3, whose queries grow with their position, or the decoder of Mistral Small 3.1."""
    if not given.has("attention.temperature_scale"):
        return named("MistralForCausalLM", "mistral", sliding_window=None)
    config = named("Ministral3ForCausalLM", "ministral3", sliding_window=None)
    weight = given.number("rope.scaling.yarn_log_multiplier", 0.0)
    own = {
        **yarn(given),
        **yarn_betas(given),
        "rope_theta": given.number("rope.freq_base"),
        "mscale": weight,
        "mscale_all_dim": weight,
        "llama_4_scaling_beta": given.number("attention.temperature_scale"),
    }
    return config | {"rope_scaling": None, "rope_parameters": own}


def qwen3(given: ModelMetadata) -> Config:
    return named("Qwen3ForCausalLM", "qwen3", use_sliding_window=False, **attention_bias(given))


def ernie4_5(given: ModelMetadata) -> Config:
    return named("Ernie4_5ForCausalLM", "ernie4_5", use_bias=given.has_in_any_layer("attn_q.bias"))


def phi3(given: ModelMetadata) -> Config:
    return named(
        "Phi3ForCausalLM",
        "phi3",
        sliding_window=given.count("attention.sliding_window", 0) or None,
        original_max_position_embeddings=given.count(
            "rope.scaling.original_context_length", given.count("context_length")
        ),
        **rotated_part(given),
    )


def smollm3(given: ModelMetadata) -> Config:
    """llama.cpp has no key for the layers that don't rotate, and takes every fourth for one."""
    return named("SmolLM3ForCausalLM", "smollm3", no_rope_layer_interval=4, **all_biases(given))


def exaone4(given: ModelMetadata) -> Config:
    return named("Exaone4ForCausalLM", "exaone4", **layer_types(given, 4))


def hunyuan_dense(given: ModelMetadata) -> Config:
    """The base is stored as it is after stretching."""
    return named("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", **attention_bias(given))


def arcee(given: ModelMetadata) -> Config:
    return named("ArceeForCausalLM", "arcee", hidden_act="relu2", **all_biases(given))


def seed_oss(given: ModelMetadata) -> Config:
    output = given.has_in_any_layer("attn_output.bias")
    return named("SeedOssForCausalLM", "seed_oss", attention_out_bias=output, **all_biases(given))


def olmo2(given: ModelMetadata) -> Config:
    """OLMo 3 is the same with windows; only layers without one stretch their positions."""
    if given.count("attention.sliding_window", 0) == 0:
        return named("Olmo2ForCausalLM", "olmo2", **attention_bias(given))
    figures = rope(given, head_dim(given))
    theta, scaling = figures["rope_theta"], figures["rope_scaling"] or {"rope_type": "default"}
    in_windows = {"rope_type": "default", "rope_theta": given.number("rope.freq_base_swa", theta)}
    both = {"rope_parameters": {FULL: scaling | {"rope_theta": theta}, SLIDING: in_windows}, "rope_scaling": None}
    return named("Olmo3ForCausalLM", "olmo3", **attention_bias(given), **layer_types(given, 4), **both)


def glm(given: ModelMetadata) -> Config:
    return named("GlmForCausalLM", "glm", **attention_bias(given), **rotated_part(given))


def glm4(given: ModelMetadata) -> Config:
    return named("Glm4ForCausalLM", "glm4", **attention_bias(given), **rotated_part(given))


def granite(given: ModelMetadata) -> Config:
    """Also Granite 4 without Mamba's layers or experts."""
    if not given.flag("rope.scaling.finetuned", True):
        raise MalformedError("is a Granite whose layers don't rotate, which doesn't run as GGUF", UNSUPPORTED)
    factors = {
        "attention_multiplier": given.number("attention.scale", 0.0) or head_dim(given) ** -0.5,
        "embedding_multiplier": given.number("embedding_scale", 0.0) or 1.0,
        "residual_multiplier": given.number("residual_scale", 0.0) or 1.0,
        "logits_scaling": given.number("logit_scale", 0.0) or 1.0,
    }
    return named("GraniteForCausalLM", "granite", **factors, **all_biases(given))


def minicpm(given: ModelMetadata) -> Config:
    """Files from before the factors had keys are of models that had these."""
    layers, hidden = given.num_layers, given.count("embedding_length")
    update = given.number("residual_scale", 1.4 / layers**0.5)
    logits = given.number("logit_scale", hidden / 256)
    return named(
        "MiniCPMForCausalLM",
        "minicpm",
        scale_emb=given.number("embedding_scale", 12.0),
        scale_depth=_rounded(update * layers**0.5),
        dim_model_base=_rounded(hidden / logits),
    )


def command_r(given: ModelMetadata) -> Config:
    own = {"use_qk_norm": given.has_in_any_layer("attn_q_norm.weight"), "logit_scale": _logit_scale(given)}
    return named("CohereForCausalLM", "cohere", layer_norm_eps=_layer_norm(given), **own, **attention_bias(given))


def cohere2(given: ModelMetadata) -> Config:
    own = {"layer_norm_eps": _layer_norm(given), "logit_scale": _logit_scale(given)}
    return named("Cohere2ForCausalLM", "cohere2", **own, **attention_bias(given), **layer_types(given, 4))


def stablelm(given: ModelMetadata) -> Config:
    """A part has a norm of its own where the two are not parallel."""
    return named(
        "StableLmForCausalLM",
        "stablelm",
        use_qkv_bias=given.has_in_any_layer("attn_q.bias"),
        qk_layernorm=given.has_in_any_layer("attn_q_norm.weight"),
        use_parallel_residual=not given.has_in_any_layer("ffn_norm.weight"),
        layer_norm_eps=_layer_norm(given),
        **rotated_part(given),
    )


def phi2(given: ModelMetadata) -> Config:
    own = {"hidden_act": "gelu_new", "layer_norm_eps": _layer_norm(given)}
    return named("PhiForCausalLM", "phi", **own, **rotated_part(given))


def nemotron(given: ModelMetadata) -> Config:
    own = {"hidden_act": "relu2", "norm_eps": _layer_norm(given)}
    return named("NemotronForCausalLM", "nemotron", **own, **all_biases(given), **rotated_part(given))


def jais2(given: ModelMetadata) -> Config:
    own = {"hidden_act": "relu2", "layer_norm_eps": _layer_norm(given)}
    return named("Jais2ForCausalLM", "jais2", **own, **all_biases(given))


def starcoder2(given: ModelMetadata) -> Config:
    own = {"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": _layer_norm(given), "sliding_window": None}
    return named("Starcoder2ForCausalLM", "starcoder2", use_bias=given.has_in_any_layer("attn_q.bias"), **own)


def _layer_norm(given: ModelMetadata) -> float:
    return given.number("attention.layer_norm_epsilon")


def _logit_scale(given: ModelMetadata) -> float:
    return given.number("logit_scale", 0.0) or 1.0


def _rounded(value: float) -> float:
    """What a factor in float32 was made of: the rounding of that is taken off again."""
    return float(f"{value:.6g}")
