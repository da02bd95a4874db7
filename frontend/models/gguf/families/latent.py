"""DeepSeek's architecture, attention to latents: V2, V3, GLM-4.7-Flash (which computes as V3 does) and Youtu."""

from .....protocol.files.gguf.refusals import MalformedError
from .common import Config, attention_bias, named
from .metadata import ModelMetadata
from .mixtures import routed, uses_sigmoid
from .rope import stretches_by_yarn, yarn, yarn_betas


def deepseek2(given: ModelMetadata) -> Config:
    config = _attention(given)
    if not given.has_in_any_layer("ffn_gate_inp.weight"):
        return named("YoutuForCausalLM", "youtu", **config)
    config |= routed(given)
    if uses_sigmoid(given) or given.has_in_any_layer("exp_probs_b.bias", "exp_probs_b"):
        return named("DeepseekV3ForCausalLM", "deepseek_v3", **config)
    is_grouped = config["n_group"] > 1
    method = "group_limited_greedy" if is_grouped else "greedy"
    return named("DeepseekV2ForCausalLM", "deepseek_v2", topk_method=method, **config)


def _attention(given: ModelMetadata) -> Config:
    """Files from before latents were kept have the sizes of whole keys and values at other names."""
    rotated = given.count("rope.dimension_count")
    key = given.count("attention.key_length_mla", given.count("attention.key_length"))
    if not 0 < rotated < key:
        raise MalformedError(f"rotates {rotated} of {key} numbers of a query")
    query_rank = given.count("attention.q_lora_rank", 0)
    config: Config = {
        "num_key_value_heads": given.count("attention.head_count"),
        "head_dim": None,
        "q_lora_rank": query_rank or None,
        "kv_lora_rank": given.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": key - rotated,
        "qk_rope_head_dim": rotated,
        "v_head_dim": given.count("attention.value_length_mla", given.count("attention.value_length")),
        "rope_interleave": True,
        **attention_bias(given),
    }
    return config | _stretched(given)


def _stretched(given: ModelMetadata) -> Config:
    """YaRN; the file has a tenth of the weight by which DeepSeek's scores grow."""
    if not stretches_by_yarn(given):
        return {}
    scaling = yarn(given) | yarn_betas(given)
    if given.has("rope.scaling.yarn_log_multiplier"):
        weight = float(f"{given.number('rope.scaling.yarn_log_multiplier') * 10:.6g}")
        scaling |= {"mscale": weight, "mscale_all_dim": weight}
    return {"rope_scaling": scaling}
