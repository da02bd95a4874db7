"""Mechanisms that a config.json can ask for, by the keys that name them: rows for `unread_keys.py`.

They count if no code of the family reads the key. Such a mechanism (other attention, positions or scales) uses the
same weights as a model without it, so no tensor reveals it. Norms, biases and gates have tensors, and a checkpoint with
tensors that no layer reads is refused when its weights are read.
"""

import re
from typing import NamedTuple

from .values import (
    COUNTS_OF_EXPERTS,
    ChangesNothing,
    ExactWithin,
    are_known_layers,
    has_no_experts,
    is_dense,
    is_endless,
    is_head_dim,
    is_off,
    is_off_or_one,
    is_on,
    is_one,
    is_plain_scale,
    is_rotated_share,
    is_the_window,
    is_unused_slope,
    is_unused_window,
    names_none_of,
    names_plain_attention,
    never,
    rotates_all,
    within_dense_length,
    within_first_chunk,
    within_window,
)


class Mechanism(NamedTuple):
    """A mechanism that a key asks for, unless its value changes nothing."""

    what: str
    keys: frozenset[str]  # by name, or
    words: re.Pattern[str] | None  # words in the key's name
    changes_nothing: ChangesNothing
    exact_within: ExactWithin = never


def _keys(what: str, changes_nothing: ChangesNothing, keys: str, exact_within: ExactWithin = never) -> Mechanism:
    return Mechanism(what, frozenset(keys.split()), None, changes_nothing, exact_within)


def _words(what: str, changes_nothing: ChangesNothing, words: str, exact_within: ExactWithin = never) -> Mechanism:
    """Match any of the words, or phrases joined by dots, in a key split into words without digits."""
    pattern = re.compile(rf"\b({'|'.join(words.split())})\b")
    return Mechanism(what, frozenset(), pattern, changes_nothing, exact_within)


# Mechanisms that any family may have.
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

# The first match counts, names before words.
MECHANISMS: tuple[Mechanism, ...] = (
    _keys(_LATER_TOKENS, is_on, "is_causal causal"),
    _keys(_LATER_TOKENS, is_off, "prefix_lm"),
    _words(_LATER_TOKENS, is_off, "bidirectional"),
    _keys("an encoder next to the decoder", is_off, "is_encoder_decoder is_encoder"),
    _words("an encoder next to the decoder", is_off, "cross.(attn|attention)"),
    _keys(_WINDOW, is_unused_window, "sliding_window", within_window),
    _keys(
        _WINDOW,
        is_the_window,
        "sliding_window_size attention_window attention_window_size attn_window attn_window_size window_size "
        "swa_window swa_window_size local_attention_window local_window_size",
        within_window,
    ),
    _keys(_CHUNKS, is_endless, "attention_chunk_size", within_window),
    _keys(_CHUNKS, is_off, "dual_chunk_attention_config", within_first_chunk),
    _words(_CHUNKS, is_off, "dual.chunk chunk(ed|wise)?.(attn|attention) (attn|attention).chunk"),
    _words(
        _SPARSE,
        is_off,
        "sparse.(attn|attention|config) (attn|attention).spars(e|ity) block.?sparse infllm moba nsa indexer "
        "index.(topk|n|head)",
        within_dense_length,
    ),
    _keys(_KINDS_OF_LAYERS, are_known_layers, "layer_types layers_block_type"),
    _keys(_KINDS_OF_LAYERS, is_off, "per_layer_config"),
    _words(_KINDS_OF_LAYERS, is_off, "mixer.types hybrid.(override|layer|block)"),
    _words("layers computed more than once", is_off_or_one, "num.loops? ut.steps layer.sharing recurrent.depth"),
    _words(
        _RECURRENT,
        is_off,
        "mamba ssm rwkv xlstm kda lightning.(attn|attention|nh|nkv|head) linear.(attn|attention|conv|key|num|value) "
        "delta.?net retnet use.retention",
    ),
    _keys("latent attention", is_off, "kv_lora_rank"),
    _words("keys and values of other layers", is_off, "kv.shar(ed|ing)"),
    _words("positions that scale attention", is_off, "temperature.tuning"),
    _keys(_ATTENTION, names_plain_attention, "attention attn mixer"),
    _words(
        _ATTENTION,
        names_plain_attention,
        "(attn|attention).(types?|kinds?|layers|class|modes?|mechanism|variant|method)",
    ),
    _words(
        "tokens that attention always sees",
        is_endless,
        "(attn|attention).sinks?.(size|tokens?) sink.(size|tokens?)",
    ),
    _keys(NORMED_QUERIES, is_off, "qk_norm use_qk_norm qk_layernorm qk_layer_norm use_qk_layernorm use_qk_layer_norm"),
    _words(_BOUND, is_endless, "soft.?cap(ping)? logits?.cap clip.qkv"),
    _keys(_SCALE_OF_ATTENTION, is_plain_scale, "attention_multiplier attention_scale attn_scale softmax_scale"),
    _keys(_SCALE_OF_ATTENTION, is_head_dim, "query_pre_attn_scalar"),
    _keys(_SCALE_OF_ATTENTION, is_on, "scale_attn_weights scale_attention"),
    _keys(
        _SCALE,
        is_one,
        "embedding_multiplier residual_multiplier lm_head_multiplier key_multiplier logits_scaling logit_scale "
        "logits_scale scale_emb scale_depth embedding_scale embed_scale residual_scale",
    ),
    _keys(_SCALE, is_off, "dim_model_base"),
    _words(_SCALE_OF_ATTENTION, is_off, "log.?n.(attn|attention)"),
    _keys(_POSITIONS, is_unused_slope, "alibi_bias_max"),
    _words(_POSITIONS, is_off, "alibi xpos"),
    _keys("layers that don't rotate", rotates_all, "no_rope_layers"),
    _words("layers that don't rotate", is_off, "no.rope use.nope nope.(layers?|interval)"),
    _keys(_POSITIONS, is_on, "use_rope use_rotary rotary use_rotary_pos_emb use_rotary_embeddings"),
    _words(_POSITIONS, is_off_or_one, "rope.ratio rope.condense.ratio"),
    _keys(ROTATED_PAIRS, is_off, "rope_interleave rope_interleaved rotary_interleaved"),
    _words(
        _POSITIONS,
        names_none_of("alibi nope ^none$ no.?pos sinusoid relative xpos learned"),
        "pos(ition|itional)?.(emb(ed|edding)?s?|enc(oding)?)(.type)? rope.position.encoding",
    ),
    _keys(_PARTLY_ROTATED, is_head_dim, "rotary_dim"),
    _words(_PARTLY_ROTATED, is_rotated_share, "(rotary|rope)(.emb)?.(pct|percent|percentage|fraction)"),
    _keys("layers that compute side by side", is_off, "parallel_attn parallel_attention parallel_residual"),
    _keys("layers that compute side by side", is_off, "use_parallel_residual parallel_block use_parallel_block"),
    _keys(
        NORMS_WITH_MEAN,
        names_none_of(r"(?<!rms)(?<!rms[\W_])layer.?norm"),
        "norm_type normalization_type normalization",
    ),
    _keys(NORMS_WITH_MEAN, is_on, "use_rms_norm use_rmsnorm"),
    _keys("norms in other positions", is_on, "pre_norm do_layer_norm_before"),
    _keys(EXPERTS, has_no_experts, COUNTS_OF_EXPERTS),
    _keys(EXPERTS, is_dense, "mlp_layer_types"),
    _keys("weights as MLX packs them", is_off, "quantization"),
)

# A key with one of these words only configures a mechanism that other keys ask for.
DETAILS = re.compile(
    r"\b(dtype|kernels|implementation|dropout|(layer)?norm|eps|std|init|initializer|loss|coef|cache)\b"
)

# Other families' names for sizes.
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
    "rope_theta": "rope_base rotary_base rotary_emb_base rope_freq_base",
    "vocab_size": "padded_vocab_size n_words n_token",
}
OTHER_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}
