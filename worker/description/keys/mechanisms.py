"""Mechanisms that a config.json can ask for, by the keys that name them: rows for `unread_keys.py`.

They count where no code of the family reads the key. What they ask for is computed with the same weights as a model
without it, so that no tensor shows it: other attention, positions and scales. Norms, biases and gates have tensors, and
a checkpoint with tensors that no layer reads is refused when its weights are read.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]
ChangesNothing = Callable[[Any, Config], bool]
# Tokens of context within which plain attention computes the same; None: it never does.
ExactWithin = Callable[[Any, Config], int | None]

# --- values that change nothing ---------------------------------------------------------------------------------------


def _is_off(value: Any, config: Config) -> bool:
    """Nothing, no, none of it; of a list, in every place."""
    if isinstance(value, (list, tuple)):
        return all(_is_off(each, config) for each in value)
    return value is None or value is False or value in ("", "none", {}) or (_is_number(value) and value == 0)


def _is_one(value: Any, config: Config) -> bool:
    """Of a factor; of a list, in every place."""
    if isinstance(value, (list, tuple)):
        return all(_is_one(each, config) for each in value)
    return value is None or value is False or (_is_number(value) and value == 1)


def _is_off_or_one(value: Any, config: Config) -> bool:
    return _is_off(value, config) or _is_one(value, config)


def _is_endless(value: Any, config: Config) -> bool:
    """Of a bound; -1 is written for none."""
    return _is_off(value, config) or (_is_number(value) and value in (-1, math.inf))


def _is_on(value: Any, config: Config) -> bool:
    return value is None or value is True or (_is_number(value) and value == 1)


def _is_unused_window(value: Any, config: Config) -> bool:
    return _is_endless(value, config) or config.get("use_sliding_window") is False


def _is_the_window(value: Any, config: Config) -> bool:
    """Or none. Gemma 2's configs give their window twice."""
    return _is_unused_window(value, config) or value == config.get("sliding_window")


def _is_unused_slope(value: Any, config: Config) -> bool:
    """Or a config that says that nothing has one."""
    return _is_off(value, config) or ("alibi" in config and _is_off(config["alibi"], config))


def _are_known_layers(value: Any, config: Config) -> bool:
    """Layers with a window or with chunks are judged by these."""
    sized = [kind for kind, size in _SIZED_LAYERS.items() if config.get(size)]
    kinds = value if isinstance(value, list) else [value]
    return all(kind is None or kind in ("full_attention", "attention", *sized) for kind in kinds)


def _is_dense(value: Any, config: Config) -> bool:
    return all(each in (None, "dense") for each in (value if isinstance(value, list) else [value]))


def _has_no_experts(value: Any, config: Config) -> bool:
    """Or a config that says in so many words that there are none."""
    counts = [config[key] for key in _COUNTS_OF_EXPERTS.split() if key in config]
    return _is_off_or_one(value, config) or (bool(counts) and all(count in (None, 0) for count in counts))


def _is_rotated_share(value: Any, config: Config) -> bool:
    """The share of each head that rotates, by a name that it had before `partial_rotary_factor`."""
    figures = config.get("rope_parameters")
    own = figures.get("partial_rotary_factor") if isinstance(figures, dict) else None
    return value is None or value == (own or config.get("partial_rotary_factor") or 1)


def _is_head_dim(value: Any, config: Config) -> bool:
    return value is None or value == _head_dim(config)


def _is_plain_scale(value: Any, config: Config) -> bool:
    """Attention divides by the square root of a head's size in any case."""
    head_dim = _head_dim(config)
    return value is None or (_is_number(value) and bool(head_dim) and math.isclose(value, head_dim**-0.5, rel_tol=1e-6))


def _head_dim(config: Config) -> int:
    given, hidden, heads = (config.get(key) for key in ("head_dim", "hidden_size", "num_attention_heads"))
    if given is None and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        return hidden // heads
    return given if isinstance(given, int) else 0


def _rotates_all(value: Any, config: Config) -> bool:
    """1 for a layer that rotates, as SmolLM3 and Llama 4 write it."""
    return value is None or (isinstance(value, list) and all(each in (1, True) for each in value))


def _names_none_of(words: str) -> ChangesNothing:
    """Accept a text, or texts in lists, without these words: others, such as "gqa", change nothing."""
    pattern = re.compile("|".join(words.split()), re.IGNORECASE)
    return lambda value, config: not any(pattern.search(text) for text in _texts(value))


def _names_plain_attention(value: Any, config: Config) -> bool:
    is_latent = config.get("kv_lora_rank") is not None
    return (_OTHER_THAN_LATENT if is_latent else _OTHER_ATTENTIONS)(value, config)


def _texts(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_COUNTS_OF_EXPERTS = "num_experts num_local_experts n_routed_experts moe_num_experts"
_SIZED_LAYERS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
_OTHER_THAN_LATENT = _names_none_of(
    "linear lightning sparse mamba ssm rwkv retention hybrid delta chunk bidirectional performer local window sliding"
)
_OTHER_ATTENTIONS = _names_none_of(
    "mla latent linear lightning sparse mamba ssm rwkv retention hybrid delta chunk bidirectional performer local "
    "window sliding"
)

# --- the context within which plain attention is exact ----------------------------------------------------------------


def _never(value: Any, config: Config) -> int | None:
    return None


def _within_window(value: Any, config: Config) -> int | None:
    """The smallest window, if there are several."""
    windows = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
    return min(windows, default=None) if all(_is_count(each) for each in windows) else None


def _within_first_chunk(value: Any, config: Config) -> int | None:
    """Dual chunk attention renumbers positions from the second chunk on, and scales beyond the original context.

    What such a config says of sparse attention beside it approximates this, to be faster.
    """
    if not isinstance(value, dict) or not _is_count(value.get("chunk_size")):
        return None
    local, original = value.get("local_size", 0), value.get("original_max_position_embeddings") or value["chunk_size"]
    if type(local) is not int or local < 0 or not _is_count(original):
        return None
    return min(value["chunk_size"] - local, original) if local < value["chunk_size"] else None


def _within_dense_length(value: Any, config: Config) -> int | None:
    """InfLLM's blocks are chosen from `dense_len` tokens on; -1 is written for always."""
    length = value.get("dense_len") if isinstance(value, dict) else None
    return length if _is_count(length) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


# --- the table --------------------------------------------------------------------------------------------------------


class Mechanism(NamedTuple):
    """What a key asks for, unless its value changes nothing."""

    what: str
    keys: frozenset[str]  # by name, or
    words: re.Pattern[str] | None  # words in a name
    changes_nothing: ChangesNothing
    exact_within: ExactWithin = _never


def _keys(what: str, changes_nothing: ChangesNothing, keys: str, exact_within: ExactWithin = _never) -> Mechanism:
    return Mechanism(what, frozenset(keys.split()), None, changes_nothing, exact_within)


def _words(what: str, changes_nothing: ChangesNothing, words: str, exact_within: ExactWithin = _never) -> Mechanism:
    """One of the words, or phrases with dots between, in a key whose words stand apart and without digits."""
    pattern = re.compile(rf"\b({'|'.join(words.split())})\b")
    return Mechanism(what, frozenset(), pattern, changes_nothing, exact_within)


# Those that a family may have in any case.
EXPERTS = "experts"
NORMED_QUERIES = "norms of queries and keys"
NORMS_WITH_MEAN = "norms that take off the mean"
ROTATED_PAIRS = "neighbours that rotate against one another"
_LATER_TOKENS = "attention to later tokens"
_WINDOW = "a window of attention"
_KINDS_OF_LAYERS = "layers of several kinds"
_SPARSE = "sparse attention"
_CHUNKS = "attention in chunks"
_RECURRENT = "recurrent layers"
_ATTENTION = "another attention"
_SCALE_OF_ATTENTION = "another scale of attention"
_SCALE = "a scale of values"
_BOUND = "a bound of values"
_POSITIONS = "other positions"
_PARTLY_ROTATED = "heads of which a part rotates"

# The first that fits counts, names before words.
MECHANISMS: tuple[Mechanism, ...] = (
    _keys(_LATER_TOKENS, _is_on, "is_causal causal"),
    _keys(_LATER_TOKENS, _is_off, "prefix_lm"),
    _words(_LATER_TOKENS, _is_off, "bidirectional"),
    _keys("an encoder beside the decoder", _is_off, "is_encoder_decoder is_encoder"),
    _words("an encoder beside the decoder", _is_off, "cross.(attn|attention)"),
    _keys(_WINDOW, _is_unused_window, "sliding_window", _within_window),
    _keys(
        _WINDOW,
        _is_the_window,
        "sliding_window_size attention_window attention_window_size attn_window attn_window_size window_size "
        "swa_window swa_window_size local_attention_window local_window_size",
        _within_window,
    ),
    _keys(_CHUNKS, _is_endless, "attention_chunk_size", _within_window),
    _keys(_CHUNKS, _is_off, "dual_chunk_attention_config", _within_first_chunk),
    _words(_CHUNKS, _is_off, "dual.chunk chunk(ed|wise)?.(attn|attention) (attn|attention).chunk"),
    _words(
        _SPARSE,
        _is_off,
        "sparse.(attn|attention|config) (attn|attention).spars(e|ity) block.?sparse infllm moba nsa indexer "
        "index.(topk|n|head)",
        _within_dense_length,
    ),
    _keys(_KINDS_OF_LAYERS, _are_known_layers, "layer_types layers_block_type"),
    _keys(_KINDS_OF_LAYERS, _is_off, "per_layer_config"),
    _words(_KINDS_OF_LAYERS, _is_off, "mixer.types hybrid.(override|layer|block)"),
    _words("layers computed more than once", _is_off_or_one, "num.loops? ut.steps layer.sharing recurrent.depth"),
    _words(
        _RECURRENT,
        _is_off,
        "mamba ssm rwkv xlstm kda lightning.(attn|attention|nh|nkv|head) linear.(attn|attention|conv|key|num|value) "
        "delta.?net retnet use.retention",
    ),
    _keys("latent attention", _is_off, "kv_lora_rank"),
    _words("keys and values of other layers", _is_off, "kv.shar(ed|ing)"),
    _words("positions that scale attention", _is_off, "temperature.tuning"),
    _keys(_ATTENTION, _names_plain_attention, "attention attn mixer"),
    _words(
        _ATTENTION,
        _names_plain_attention,
        "(attn|attention).(types?|kinds?|layers|class|modes?|mechanism|variant|method)",
    ),
    _words(
        "tokens that attention always sees",
        _is_endless,
        "(attn|attention).sinks?.(size|tokens?) sink.(size|tokens?)",
    ),
    _keys(NORMED_QUERIES, _is_off, "qk_norm use_qk_norm qk_layernorm qk_layer_norm use_qk_layernorm use_qk_layer_norm"),
    _words(_BOUND, _is_endless, "soft.?cap(ping)? logits?.cap clip.qkv"),
    _keys(_SCALE_OF_ATTENTION, _is_plain_scale, "attention_multiplier attention_scale attn_scale softmax_scale"),
    _keys(_SCALE_OF_ATTENTION, _is_head_dim, "query_pre_attn_scalar"),
    _keys(_SCALE_OF_ATTENTION, _is_on, "scale_attn_weights scale_attention"),
    _keys(
        _SCALE,
        _is_one,
        "embedding_multiplier residual_multiplier lm_head_multiplier key_multiplier logits_scaling logit_scale "
        "logits_scale scale_emb scale_depth embedding_scale embed_scale residual_scale",
    ),
    _keys(_SCALE, _is_off, "dim_model_base"),
    _words(_SCALE_OF_ATTENTION, _is_off, "log.?n.(attn|attention)"),
    _keys(_POSITIONS, _is_unused_slope, "alibi_bias_max"),
    _words(_POSITIONS, _is_off, "alibi xpos"),
    _keys("layers that don't rotate", _rotates_all, "no_rope_layers"),
    _words("layers that don't rotate", _is_off, "no.rope use.nope nope.(layers?|interval)"),
    _keys(_POSITIONS, _is_on, "use_rope use_rotary rotary use_rotary_pos_emb use_rotary_embeddings"),
    _keys(ROTATED_PAIRS, _is_off, "rope_interleave rope_interleaved rotary_interleaved"),
    _words(
        _POSITIONS,
        _names_none_of("alibi nope ^none$ no.?pos sinusoid relative xpos learned"),
        "pos(ition|itional)?.(emb(ed|edding)?s?|enc(oding)?)(.type)? rope.position.encoding",
    ),
    _keys(_PARTLY_ROTATED, _is_head_dim, "rotary_dim"),
    _words(_PARTLY_ROTATED, _is_rotated_share, "(rotary|rope)(.emb)?.(pct|percent|percentage|fraction)"),
    _keys("layers that compute side by side", _is_off, "parallel_attn parallel_attention parallel_residual"),
    _keys("layers that compute side by side", _is_off, "use_parallel_residual parallel_block use_parallel_block"),
    _keys(
        NORMS_WITH_MEAN,
        _names_none_of(r"(?<!rms)(?<!rms[\W_])layer.?norm"),
        "norm_type normalization_type normalization",
    ),
    _keys(NORMS_WITH_MEAN, _is_on, "use_rms_norm use_rmsnorm"),
    _keys("norms in other places", _is_on, "pre_norm do_layer_norm_before"),
    _keys(EXPERTS, _has_no_experts, _COUNTS_OF_EXPERTS),
    _keys(EXPERTS, _is_dense, "mlp_layer_types"),
    _keys("weights as MLX packs them", _is_off, "quantization"),
)

# A key with one of these words says how a mechanism is computed or trained that other keys ask for.
DETAILS = re.compile(
    r"\b(dtype|kernels|implementation|dropout|(layer)?norm|eps|std|init|initializer|loss|coef|cache)\b"
)

# Sizes by the names that other families give them.
_OTHER_NAMES = {
    "hidden_size": "d_model n_embd dim model_dim hidden_dim emb_dim embedding_size",
    "num_hidden_layers": "n_layer n_layers num_layers num_blocks num_decoder_layers",
    "num_attention_heads": "n_head n_heads num_heads attention_heads",
    "num_key_value_heads": "n_kv_heads num_kv_heads num_query_groups multi_query_group_num",
    "num_experts_per_tok": "num_experts_per_token experts_per_token",
    "intermediate_size": "n_inner ffn_dim d_ff ffn_hidden_size dff dim_ff feed_forward_size",
    "head_dim": "kv_channels d_head dim_head head_size attention_head_size d_kv attention_head_dim",
    "rms_norm_eps": "layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon layernorm_epsilon rms_norm_epsilon "
    "rms_eps",
    "vocab_size": "padded_vocab_size n_words n_token",
}
OTHER_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}
