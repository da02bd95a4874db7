"""What the keys of configs mean that no code here reads: rows for `config_keys.py`.

Collected from every class of causal language models in transformers and from published configs; a test holds the tables
against the classes of the installed transformers, so that a new key has to get a row.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]
ChangesNothing = Callable[[Any, Config], bool]

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
    return value is None or value is True


def _is_plain_experts(value: Any, config: Config) -> bool:
    """Or a config that says in so many words that there are none."""
    counts = [config[key] for key in _COUNTS_OF_EXPERTS if key in config]
    return _is_off_or_one(value, config) or (bool(counts) and all(count in (None, 0) for count in counts))


def _is_any_of(*values: str) -> ChangesNothing:
    """Nothing, or these; of a list, in every place."""
    return lambda value, config: all(
        each is None or each in values for each in (value if isinstance(value, list) else [value])
    )


def _is_unused_window(value: Any, config: Config) -> bool:
    return _is_endless(value, config) or config.get("use_sliding_window") is False


def _is_the_window(value: Any, config: Config) -> bool:
    """Or none. Gemma 2's configs give their window twice; where none is supported, `sliding_window` is refused."""
    return _is_unused_window(value, config) or value == config.get("sliding_window")


def _is_rotated_share(value: Any, config: Config) -> bool:
    """The share of each head that rotates, by a name that it had before `partial_rotary_factor`."""
    figures = config.get("rope_parameters")
    own = figures.get("partial_rotary_factor") if isinstance(figures, dict) else None
    return value is None or value == (own or config.get("partial_rotary_factor") or 1)


def _is_head_dim(value: Any, config: Config) -> bool:
    return value is None or value == _head_dim(config)


def _is_query_dim(value: Any, config: Config) -> bool:
    """Of latent attention, whose queries have two parts, and otherwise of any."""
    parts = [config.get(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim")]
    sizes = [part for part in parts if isinstance(part, int)]
    return value == sum(sizes) if len(sizes) == len(parts) else _is_head_dim(value, config)


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


_COUNTS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- keys by name -----------------------------------------------------------------------------------------------------


def _any(words: str) -> re.Pattern[str]:
    """One of the words, or phrases with dots between, in a key whose words stand apart and without digits."""
    return re.compile(rf"\b({'|'.join(words.split())})\b")


# Keys that no answer depends on.
HARMLESS = re.compile(
    # bookkeeping
    r"architectures|model_type|auto_map|transformers_version|torch_dtype|dtype|id2label|label2id|problem_type"
    r"|_?name_or_path|_commit_hash|quantization_config|compression_config|task_specific_params|torchscript|pruned_heads"
    r"|tokenizer_class|(bos|eos|pad|unk|mask)_index|.*_token_(id|index)s?|(custom_)?generation_config|training_config"
    r"|is_llama_config|unsloth.*|transformers\.js_config|finetuning_task|prefix|languages|default_language|num_labels"
    # how it is computed, not what
    r"|_?(attn|experts)_implementation(_.*)?|use_cache|use_kernels?|tie_encoder_decoder|tie_last_hidden_states"
    r"|chunk_size_feed_forward|pretraining_tp|tensor_parallel.*|sequence_parallel|fuse_.*|slow_but_exact|rescale_every"
    r"|return_dict|output_(attentions|hidden_states|scores|router_logits|past|last_states)|return_last_states"
    r"|num_logits_to_keep|is_decoder|memory_efficient.*|use_memory_efficient_attention|reorder_and_upcast_attn|mode"
    r"|use_mambapy|use_associative_scan|(step|sequence)_kernel|max_inference_chunksize|weight_mode"
    # which layers have a window, if there is one; what has windows reads it
    r"|max_window_layers"
    # generation, from before it had a file of its own
    r"|assistant_confidence_threshold|assistant_lookbehind|bad_words_ids|begin_suppress_tokens|diversity_penalty"
    r"|do_sample|early_stopping|encoder_no_repeat_ngram_size|encoder_repetition_penalty|epsilon_cutoff|eta_cutoff"
    r"|exponential_decay_length_penalty|length_penalty|max_length|max_new_tokens|min_length|no_repeat_ngram_size"
    r"|num_assistant_tokens(_schedule)?|num_beam_groups|num_beams|num_return_sequences|remove_invalid_values"
    r"|repetition_penalty|return_dict_in_generate|suppress_tokens|target_lookbehind|temperature|top_[kp]|typical_p"
    # lengths that were trained with; the context is max_position_embeddings
    r"|model_max_length|max_seq(uence)?_len(gth)?|seq(uence)?_length|n_ctx|n_positions|context_length"
    r"|initial_context_length|max_(source|target)_positions"
    # sizes that tensors show; those that are computed with are read
    r"|vocab_size|(hidden|intermediate)_size|num_(hidden_layers|attention_heads|key_value_heads)|head_dim"
    r"|max_position_embeddings|type_vocab_size|block_size"
)
# A key with one of these words concerns training, or heads that guess further tokens.
HARMLESS_WORDS = _any(
    "dropout pdrop layerdrop jitter loss coef init initiali[sz]er initiali[sz]ation std seed recompute checkpointing "
    "flash dtype fp float precision implementation version summary classifier mtp nextn labels? logging kernels cutoff "
    "device spec augment capacity cache train training trainer grad gradients? optimizer lr batch epochs? warmup adam "
    "neftune"
)


class Feature(NamedTuple):
    """What a key asks for, unless its value changes nothing."""

    what: str
    changes_nothing: ChangesNothing


EXPERTS = "experts"
_WINDOW = "a window of attention"
_POSITIONS = "other positions"
_PARTLY_ROTATED = "heads of which a part rotates"
_NORMS = "other norms"
_ATTENTION = "another attention"
_SCALE_OF_ATTENTION = "another scale of attention"
_LATER_TOKENS = "attention to later tokens"
_KINDS_OF_LAYERS = "layers of several kinds"
_PARTS = "parts that no dense decoder has"

# By the feature, with the value that changes nothing: the names of keys.
_FEATURES: tuple[tuple[str, ChangesNothing, str], ...] = (
    (_LATER_TOKENS, _is_on, "is_causal causal"),
    (_LATER_TOKENS, _is_off, "prefix_lm use_bidirectional_attention use_bidirectional_attn"),
    ("an encoder beside the decoder", _is_off, "is_encoder_decoder is_encoder add_cross_attention"),
    (_WINDOW, _is_unused_window, "sliding_window"),
    (_WINDOW, _is_the_window, "sliding_window_size"),
    (_KINDS_OF_LAYERS, _is_any_of("full_attention", "attention"), "layer_types layers_block_type"),
    (EXPERTS, _is_any_of("dense"), "mlp_layer_types"),
    (_ATTENTION, _is_any_of("full", "full_attention", "causal"), "attention_type attn_type"),
    (_SCALE_OF_ATTENTION, _is_plain_scale, "attention_multiplier attention_scale attn_scale softmax_scale"),
    (_SCALE_OF_ATTENTION, _is_head_dim, "query_pre_attn_scalar"),
    (_SCALE_OF_ATTENTION, _is_on, "scale_attn_weights scale_attention"),
    ("heads of several sizes", _is_head_dim, "v_head_dim"),
    ("heads of several sizes", _is_query_dim, "qk_head_dim"),
    ("layers that don't rotate", _rotates_all, "no_rope_layers"),
    (_PARTLY_ROTATED, _is_head_dim, "rotary_dim"),
    (_PARTLY_ROTATED, _is_one, "partial_rotary_factor"),
    (_PARTLY_ROTATED, _is_rotated_share, "rotary_pct rope_pct rotary_emb_fraction rope_percent rope_percentage"),
    (_POSITIONS, _is_on, "use_rope use_rotary rotary use_rotary_pos_emb use_rotary_embeddings"),
    (_POSITIONS, _is_any_of("rope", "rotary", "default"), "position_embedding_type"),
    (_NORMS, _is_on, "use_rms_norm use_rmsnorm rms_norm rmsnorm pre_norm do_layer_norm_before"),
    (_NORMS, _is_on, "layer_norm_elementwise_affine norm_elementwise_affine"),
    (_NORMS, _is_any_of("rmsnorm", "rms_norm", "RMSNorm", "rms"), "norm_type normalization_type"),
    (
        "another activation",
        _is_any_of("silu", "swish"),
        "hidden_act hidden_activation activation_function activation mlp_hidden_act hidden_mamba_act afn ff_activation",
    ),
    ("an MLP without a gate", _is_on, "gated_mlp use_gated_mlp glu_mlp use_swiglu gated_linear_unit"),
    ("biases", _is_on, "no_bias"),
    ("a scale of embeddings", _is_one, "embedding_fraction"),
    ("a scale of logits", _is_off, "dim_model_base"),
    ("weights as MLX packs them", _is_off, "quantization"),
    (
        _PARTS,
        _is_off,
        "asm backbone_hidden_size compress_rates concat_input d_inner dense_intermediate_size enable_pronunciation "
        "enable_shape end_n_top expand expansion_ratio first_k_dense_replace intermediate_multiple_size "
        "intermediate_size_mlp lang_id mask_feature_length mask_feature_min_masks mask_feature_prob "
        "median_filter_width n_langs num_buckets num_channels num_dense_layers num_hashes patching_batch_size "
        "patching_mode prefix_dense_intermediate_size pronunciation_vocab_size reuse_len same_length "
        "shape_vocab_size start_n_top use_double_wide_mlp use_lang_emb use_long_context use_ordered_embeddings "
        "prompt_length prompt_mid_dim use_prompt use_task_id use_weighted_layer_sum vocabulary_map",
    ),
)
FEATURES = {key: Feature(what, changes_nothing) for what, changes_nothing, keys in _FEATURES for key in keys.split()}

# Sizes by the names that other families give them.
_OTHER_NAMES = {
    "hidden_size": "d_model n_embd dim model_dim hidden_dim emb_dim embedding_size word_embed_proj_dim embedding_dim "
    "input_embedding_size output_embedding_size",
    "num_hidden_layers": "n_layer n_layers num_layers num_blocks num_decoder_layers",
    "num_attention_heads": "n_head n_heads num_heads attention_heads",
    "num_key_value_heads": "n_kv_heads num_kv_heads num_query_groups multi_query_group_num",
    "num_experts_per_tok": "num_experts_per_token experts_per_token",
    "intermediate_size": "n_inner ffn_dim d_ff ffn_hidden_size dff dim_ff feed_forward_size",
    "head_dim": "kv_channels d_head dim_head head_size attention_head_size d_kv attention_head_dim",
    "rms_norm_eps": "layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon layernorm_epsilon eps rms_norm_epsilon "
    "rms_eps",
    "vocab_size": "padded_vocab_size unpadded_vocab_size n_words n_token output_vocab_size decoder_vocab_size",
}
OTHER_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}


class Computation(NamedTuple):
    """What a key asks for, unless its value changes nothing, if its words are found in its name."""

    what: str
    words: re.Pattern[str]
    changes_nothing: ChangesNothing = _is_off


# The first that fits counts, so what says how a value is meant comes first.
COMPUTATIONS: tuple[Computation, ...] = (
    Computation(
        "pictures or sound",
        _any("vision visual images? audio video speech mm patch(es)? patcher mel codec chroma vq codebooks voice"),
    ),
    Computation(
        "a bound of values",
        _any("softcap(ping)? soft.cap(ping)? logit.cap(ping)? cap clip clamp limit threshold lower.bound upper.bound"),
        _is_endless,
    ),
    Computation(
        EXPERTS,
        _any(
            "experts? moe router routed routing route top.?k sparse.step sparsity scoring centroids n.groups? o.groups "
            "shared.intermediate shared.attention layer.group"
        ),
        _is_plain_experts,
    ),
    Computation(
        "a scale of values",
        _any(
            "multipliers? scale scaling scalar scaled rescale alpha beta gamma mup factor magnitude temperature "
            "attn.temperature ngpt"
        ),
        _is_one,
    ),
    Computation(
        _POSITIONS,
        _any("m?rope yarn ntk rotary nope alibi positions? positional pos relative? rel sinusoidal learned.pos"),
    ),
    Computation(
        _WINDOW,
        _any(
            "windows? sliding swa local.(attn|attention|layers?|blocks|num) chunk(ed|wise)? lsh global.(attn|layers?)"
        ),
    ),
    Computation(_NORMS, _any("norms? layernorm rmsnorm normali[sz]ed? ln prenorm postnorm eps")),
    Computation("biases", _any("bias(es)?")),
    Computation("another activation", _any("act activations? gelu relu glu swiglu geglu")),
    Computation("gates", _any("gat(e|ed|es|ing)")),
    Computation(
        "recurrent layers",
        _any(
            "s?conv mamba ssm rwkv lru recurrent linear.(a|allow|attn|conv|dt|head|key|num|value) delta state.size "
            "conv.states time.step mask.time cca xlstm kda mems? hash.byte axial loops? cycles use.mamba"
        ),
    ),
    Computation(
        _ATTENTION,
        _any(
            "attn attentions? qk kv qkv multi.query sinks? index.(head|n|topk|block) indexers? "
            "parallel.(attn|residual|block) residual hc shortcut altup laurel lora.rank latent (laurel|adapter).rank "
            "bidirectional bi.data cross.(attn|attention|layer) encoder decoder hybrid"
        ),
    ),
    Computation(
        _KINDS_OF_LAYERS,
        _any(
            "per.layer layers?.(types?|ids?|idx|indices|pattern|period|offset|interval|freq|step|config) only.layers "
            "(moe|dense|mlp|attn|input|output).layers layers.per (block|segment|prompt).types? task.type random.blocks "
            "block.(auto|multiple)"
        ),
    ),
    Computation(
        _PARTS,
        _any("configs? adapters? embed(ding)?s? emb ngrams? ple pooling share round.up"),
    ),
)
