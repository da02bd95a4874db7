"""Facts of attention to latents: DeepSeek V2 and V3, GLM-4.7-Flash (which computes as V3 does) and Youtu."""

from ..refusals import MalformedError
from .facts import ATTENTION_BIAS, Fact, Key
from .mixtures import uses_sigmoid
from .model_metadata import Config, ModelMetadata
from .rope import stretches_by_yarn, yarn, yarn_betas


def has_no_experts(given: ModelMetadata) -> bool:
    return not given.has_in_any_layer("ffn_gate_inp.weight")


def is_v3(given: ModelMetadata) -> bool:
    return uses_sigmoid(given) or given.has_in_any_layer("exp_probs_b.bias", "exp_probs_b")


def topk_method(given: ModelMetadata) -> Config:
    is_grouped = given.count("expert_group_count", 0) > 1
    return {"topk_method": "group_limited_greedy" if is_grouped else "greedy"}


def _heads(given: ModelMetadata) -> Config:
    """Files from before latents were kept have the sizes of whole keys and values at other names."""
    rotated = given.count("rope.dimension_count")
    key = given.count("attention.key_length_mla", given.count("attention.key_length"))
    if not 0 < rotated < key:
        raise MalformedError(f"rotates {rotated} of {key} numbers of a query")
    value = given.count("attention.value_length_mla", given.count("attention.value_length"))
    sizes = {"qk_nope_head_dim": key - rotated, "qk_rope_head_dim": rotated, "v_head_dim": value}
    return sizes | {"head_dim": None, "rope_interleave": True}


def _stretched(given: ModelMetadata) -> Config:
    """YaRN; the file has a tenth of the weight by which DeepSeek's scores grow."""
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
