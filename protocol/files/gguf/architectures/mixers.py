"""Facts of what layers use instead of attention: attention to latents, gated delta nets, and short convolutions.

Latents are those of DeepSeek V2 and V3, GLM-4.7-Flash (which computes as V3 does) and Youtu.
"""

from ..refusals import UNSUPPORTED, MalformedError
from .facts import ATTENTION_BIAS, FULL, Fact, Key, has, number
from .mixtures import uses_sigmoid
from .model_metadata import Config, ModelMetadata
from .rope import rotated_part, stretches_by_yarn, yarn, yarn_betas

_USUAL_INTERVAL = 4


def is_v3(given: ModelMetadata) -> bool:
    return uses_sigmoid(given) or given.has_in_any_layer("exp_probs_b.bias", "exp_probs_b")


def topk_method(given: ModelMetadata) -> Config:
    is_grouped = given.count("expert_group_count", 0) > 1
    return {"topk_method": "group_limited_greedy" if is_grouped else "greedy"}


def _heads(given: ModelMetadata) -> Config:
    """Files from before latents were cached have the sizes of whole keys and values under other names."""
    rotated = given.count("rope.dimension_count")
    key = given.count("attention.key_length_mla", given.count("attention.key_length"))
    if not 0 < rotated < key:
        raise MalformedError(f"rotates {rotated} of {key} numbers of a query")
    value = given.count("attention.value_length_mla", given.count("attention.value_length"))
    sizes = {"qk_nope_head_dim": key - rotated, "qk_rope_head_dim": rotated, "v_head_dim": value}
    return sizes | {"head_dim": None, "rope_interleave": True}


def _stretched(given: ModelMetadata) -> Config:
    """YaRN; the file stores a tenth of the weight by which DeepSeek's scores grow."""
    if not stretches_by_yarn(given):
        return {}
    scaling = yarn(given) | yarn_betas(given)
    if given.has("rope.scaling.yarn_log_multiplier"):
        weight = float(f"{given.number('rope.scaling.yarn_log_multiplier') * 10:.6g}")
        scaling |= {"mscale": weight, "mscale_all_dim": weight}
    return {"rope_scaling": scaling}


LATENTS: tuple[Fact, ...] = (
    _heads,
    Key("num_key_value_heads", "attention.head_count"),
    Key("q_lora_rank", "attention.q_lora_rank", default=0, meaning={0: None}),
    Key("kv_lora_rank", "attention.kv_lora_rank"),
    ATTENTION_BIAS,
    _stretched,
)


def _delta_net_layers(given: ModelMetadata) -> Config:
    inner, value_heads = given.count("ssm.inner_size"), given.count("ssm.time_step_rank")
    if value_heads == 0 or inner % value_heads:
        raise MalformedError(f"shares {inner} numbers among {value_heads} value heads")
    recurrent = given.flags("attention.recurrent_layers")
    if recurrent is None:
        every = given.count("full_attention_interval", _USUAL_INTERVAL) or _USUAL_INTERVAL
        recurrent = [(layer + 1) % every != 0 for layer in range(given.num_layers)]
    kinds = ["linear_attention" if each else FULL for each in recurrent]
    return {"layer_types": kinds, "linear_value_head_dim": inner // value_heads}


def _convolution_layers(given: ModelMetadata) -> Config:
    """Layers without keys are convolutions."""
    if given.count("attention.sliding_window", 0):
        raise MalformedError("has windows next to short convolutions, which its family hasn't", UNSUPPORTED)
    attends = [count > 0 for count in given.counts("attention.head_count_kv")]
    return {"layer_types": [FULL if each else "conv" for each in attends]}


DELTA_NETS: tuple[Fact, ...] = (
    _delta_net_layers,
    Key("linear_conv_kernel_dim", "ssm.conv_kernel"),
    Key("linear_key_head_dim", "ssm.state_size"),
    Key("linear_num_key_heads", "ssm.group_count"),
    Key("linear_num_value_heads", "ssm.time_step_rank"),
    ATTENTION_BIAS,
    rotated_part,
)
CONVOLUTIONS: tuple[Fact, ...] = (
    _convolution_layers,
    Key("conv_L_cache", "shortconv.l_cache"),
    has("conv_bias", "shortconv.conv.bias"),
    number("norm_eps", "attention.layer_norm_rms_epsilon"),
)
