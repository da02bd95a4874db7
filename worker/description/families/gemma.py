"""Gemma's families, as rows of the table in `table.py`: norms stored less one, scaled embeddings, capped scores."""

from ..parts.heads import heads_by_kind
from ..parts.mixtures import GEMMA4 as GEMMA4_MIXTURE
from ..parts.norms import AROUND, AROUND_BESIDE_EXPERTS, BEFORE_AS_VAULTGEMMA_NAMES_THEM, NormForm
from ..parts.scales import gemma2_scales, gemma4_scales, gemma_scales
from .family import (
    FULL,
    SLIDING,
    Family,
    attention_biases,
    by_head,
    sliding_but_every,
    sliding_but_the_last,
    sliding_first,
)

_LESS_ONE = NormForm(is_stored_less_one=True)
_GEMMA_DEFAULTS = {
    "vocab_size": 256_000,
    "hidden_size": 3072,
    "intermediate_size": 24_576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "hidden_act": "gelu_pytorch_tanh",
}
GEMMA = Family(
    "gemma",
    biased=attention_biases,
    norm=_LESS_ONE,
    meant_activations={"gelu": "gelu_pytorch_tanh"},  # the name in its first configs
    scales=gemma_scales,
    defaults=_GEMMA_DEFAULTS,
)
_GEMMA2_DEFAULTS = _GEMMA_DEFAULTS | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA2 = Family(
    "gemma2",
    windows=sliding_first,
    biased=attention_biases,
    norm=_LESS_ONE,
    norm_places=lambda config: AROUND,
    activation="hidden_activation",
    scales=gemma2_scales,
    defaults=_GEMMA2_DEFAULTS,
)
VAULTGEMMA = Family(
    "vaultgemma",
    windows=sliding_first,
    biased=attention_biases,
    norm=_LESS_ONE,
    norm_places=lambda config: BEFORE_AS_VAULTGEMMA_NAMES_THEM,
    activation="hidden_activation",
    scales=gemma2_scales,
    defaults=_GEMMA2_DEFAULTS,
)
GEMMA3 = Family(
    "gemma3_text",
    windows=sliding_but_every("sliding_window_pattern", 6),
    biased=attention_biases,
    qk_norm=by_head,
    norm=_LESS_ONE,
    norm_places=lambda config: AROUND,
    activation="hidden_activation",
    scales=gemma2_scales,
    ropes_by_kind=True,
    window_theta=("rope_local_base_freq", 10_000.0),
    rope_theta=1_000_000.0,
    has_whole_context=True,
    defaults=_GEMMA2_DEFAULTS
    | {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    },
)
_GEMMA4_ROPES = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
}
GEMMA4 = Family(
    "gemma4_text",
    windows=sliding_but_the_last,
    ends_full=True,
    heads=heads_by_kind,
    norms_values=True,
    widens_readers=True,
    has_token_inputs=True,
    scales_layers=True,
    biased=attention_biases,
    qk_norm=by_head,
    norm_places=lambda config: AROUND_BESIDE_EXPERTS if config.get("enable_moe_block") else AROUND,
    mixture=GEMMA4_MIXTURE,
    activation="hidden_activation",
    scales=gemma4_scales,
    ropes_by_kind=True,
    rope_kinds={kind: kind for kind in ("default", "linear", "llama3", "yarn", "proportional")},
    has_whole_context=True,
    defaults=_GEMMA2_DEFAULTS
    | {
        "vocab_size": 262_144,
        "num_hidden_layers": 30,
        "max_position_embeddings": 131_072,
        "sliding_window": 512,
        "final_logit_softcapping": None,
        "global_head_dim": 512,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
        "rope_parameters": _GEMMA4_ROPES,
    },
)
