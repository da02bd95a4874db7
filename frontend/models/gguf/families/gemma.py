"""Rows of Gemma's families, whose scores have a scale of their own and whose windows have positions of their own."""

from .....protocol.files.gguf.gemma import LAYERS_SCALED_BY_WIDTH, WINDOWS_BUT_EVERY
from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .common import FULL, SLIDING, Config, layer_types, named
from .metadata import ModelMetadata

_GELU = "gelu_pytorch_tanh"


def gemma(given: ModelMetadata) -> Config:
    return named("GemmaForCausalLM", "gemma", hidden_act=_GELU)


def gemma2(given: ModelMetadata) -> Config:
    return named(
        "Gemma2ForCausalLM",
        "gemma2",
        hidden_act=_GELU,
        hidden_activation=_GELU,
        query_pre_attn_scalar=_scalar(given),
        attn_logit_softcapping=given.number("attn_logit_softcapping", 50.0),
        final_logit_softcapping=given.number("final_logit_softcapping", 30.0),
        **_windows(given),
    )


def gemma3(given: ModelMetadata) -> Config:
    return named(
        "Gemma3ForCausalLM",
        "gemma3_text",
        hidden_activation=_GELU,
        query_pre_attn_scalar=_scalar(given),
        attn_logit_softcapping=None,
        final_logit_softcapping=given.number("final_logit_softcapping", 0.0) or None,
        rope_theta=given.number("rope.freq_base", 1_000_000.0),
        rope_local_base_freq=given.number("rope.freq_base_swa", 10_000.0),
        **_windows(given),
    )


def gemma4(given: ModelMetadata) -> Config:
    windows = _windows(given)
    kinds = windows["layer_types"]
    widths, readers = given.counts("feed_forward_length"), given.count("attention.shared_kv_layers", 0)
    config = named(
        "Gemma4ForCausalLM",
        "gemma4_text",
        hidden_activation=_GELU,
        intermediate_size=widths[0],
        use_double_wide_mlp=_is_wider(widths, readers),
        head_dim=given.count("attention.key_length_swa"),
        global_head_dim=given.count("attention.key_length"),
        num_kv_shared_layers=readers,
        hidden_size_per_layer_input=given.count("embedding_length_per_layer_input", 0),
        vocab_size_per_layer_input=given.rows("token_embd.weight"),
        final_logit_softcapping=given.number("final_logit_softcapping", 0.0) or None,
        rope_scaling=None,
        rope_parameters={FULL: _proportional(given), SLIDING: _of_windows(given)},
        **windows,
        **_heads(given, kinds, readers),
    )
    return config | _experts(given)


def _windows(given: ModelMetadata) -> Config:
    return layer_types(given, WINDOWS_BUT_EVERY[given.architecture])


def _scalar(given: ModelMetadata) -> int:
    """What scores are divided by the root of."""
    hidden, heads = given.count("embedding_length"), given.count("attention.head_count")
    if given.num_layers == LAYERS_SCALED_BY_WIDTH[given.architecture]:
        return hidden // heads
    return given.count("attention.key_length", hidden // heads)


def _is_wider(widths: list[int], readers: int) -> bool:
    """Layers that read others' keys may have MLPs twice as wide; all others are alike."""
    own = len(widths) - readers
    is_wider = readers > 0 and widths[-1] == 2 * widths[0]
    if set(widths[:own]) != {widths[0]} or set(widths[own:]) - {widths[0] * (1 + is_wider)}:
        raise MalformedError("has MLPs of widths that its family hasn't", UNSUPPORTED)
    return is_wider


def _heads(given: ModelMetadata, kinds: list[str], readers: int) -> Config:
    """Keys and values: layers without a window may have other heads, whose keys serve as values, too."""
    counts = given.counts("attention.head_count_kv")
    in_windows = {count for count, kind in zip(counts, kinds, strict=True) if kind == SLIDING}
    elsewhere = {count for count, kind in zip(counts, kinds, strict=True) if kind == FULL}
    if len(in_windows) > 1 or len(elsewhere) > 1:
        raise MalformedError("has layers of one kind with different numbers of key-value heads", UNSUPPORTED)
    values = given.has_in_layers("attn_v.weight")[: len(kinds) - readers]
    keys_serve = any(kind == FULL and not own for kind, own in zip(kinds, values, strict=False))
    return {
        "num_key_value_heads": max(in_windows or elsewhere),
        "attention_k_eq_v": keys_serve,
        "num_global_key_value_heads": max(elsewhere) if keys_serve and elsewhere else None,
    }


def _proportional(given: ModelMetadata) -> Config:
    """Of so many angles the first ones turn; the others' frequencies are divided by a number without end."""
    factors = given.factors("rope_freqs.weight")
    turning = 1.0 if factors is None else sum(each == 1 for each in factors) / len(factors)
    theta = given.number("rope.freq_base", 1_000_000.0)
    return {"rope_type": "proportional", "partial_rotary_factor": turning, "rope_theta": theta}


def _of_windows(given: ModelMetadata) -> Config:
    return {"rope_type": "default", "rope_theta": given.number("rope.freq_base_swa", 10_000.0)}


def _experts(given: ModelMetadata) -> Config:
    """Beside the MLP of each layer, in some."""
    if given.count("expert_count", 0) == 0:
        return {"enable_moe_block": False}
    return {
        "enable_moe_block": True,
        "num_experts": given.count("expert_count"),
        "top_k_experts": given.count("expert_used_count"),
        "moe_intermediate_size": given.count("expert_feed_forward_length"),
    }
