"""Dense families that differ from a Llama in their norms, norm positions, factors, caps or activations: rows of the
table in `table.py`.
"""

from typing import Any

from ....protocol.fields.rules import shown
from ..parts.mixers import Count, Mixer, attention_everywhere
from ..parts.norms import AFTER, AROUND_AS_GLM_NAMES_THEM, BEFORE, PARALLEL, NormForm, NormPlaces
from ..parts.scales import cohere_scales, granite_scales, minicpm_scales
from ..parts.stored_names import GATE_UP, GRANITE_HYBRID_NAMES, PHI_NAMES, STARCODER2_NAMES
from .dense import DEFAULTS, LLAMA
from .family import (
    MLP,
    QKV,
    Family,
    QKNorm,
    Windows,
    attention_biases,
    ernie_biases,
    every_layer,
    llama_biases,
    qkv_biases,
    sliding_but_every,
    together,
)

_LAYER_NORM = NormForm(has_mean=True, has_bias=True)
_LAYER_NORM_WITHOUT_BIAS = NormForm(has_mean=True)

# --- norms after the parts, or around them ----------------------------------------------------------------------------

_OLMO2_DEFAULTS = DEFAULTS | {
    "vocab_size": 50_304,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
}
OLMO2 = Family(
    "olmo2",
    biased=attention_biases,
    qk_norm=together,
    norm_places=lambda config: AFTER,
    defaults=_OLMO2_DEFAULTS,
)
OLMO3 = Family(
    "olmo3",
    windows=sliding_but_every(None, 4),
    biased=attention_biases,
    qk_norm=together,
    norm_places=lambda config: AFTER,
    ropes_by_kind=True,
    # In transformers a `rope_theta` next to the ropes belongs to the layers without a window.
    window_theta=("", 500_000.0),
    rope_theta=500_000.0,
    defaults=_OLMO2_DEFAULTS | {"sliding_window": 4096},
)
_GLM_DEFAULTS = DEFAULTS | {
    "vocab_size": 151_552,
    "intermediate_size": 13_696,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
}
GLM = Family("glm", biased=qkv_biases, rotates_pairs=True, rotates_part=True, stored=GATE_UP, defaults=_GLM_DEFAULTS)
GLM4 = Family(
    "glm4",
    biased=qkv_biases,
    norm_places=lambda config: AROUND_AS_GLM_NAMES_THEM,
    rotates_pairs=True,
    rotates_part=True,
    stored=GATE_UP,
    defaults=_GLM_DEFAULTS,
)

# --- factors ----------------------------------------------------------------------------------------------------------

_GRANITE_FACTORS = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
GRANITE = Family(
    "granite",
    biased=llama_biases,
    scales=granite_scales,
    defaults=LLAMA.defaults | dict.fromkeys(_GRANITE_FACTORS, 1.0),
)


def _attention_alone(config: dict[str, Any], num_layers: int, count: Count) -> tuple[Mixer, ...]:
    kinds, num_experts = config.get("layer_types"), config["num_local_experts"]
    if not isinstance(kinds, list) or any(kind not in ("attention", "full_attention") for kind in kinds):
        raise ValueError(
            "layer_types must name attention for each layer, and Mamba's layers are not supported: use a Granite 4 "
            "without them, whose name has no -h"
        )
    if num_experts:
        raise ValueError(f"num_local_experts is {shown(num_experts)}, and only 0 is supported next to its shared MLP")
    return attention_everywhere(config, num_layers, count)


def _shared_width(config: dict[str, Any]) -> int:
    width = config["shared_intermediate_size"]
    if type(width) is not int:
        raise ValueError(f"shared_intermediate_size must be a positive whole number, and is {shown(width)}")
    return width


def _rotates_if_named(config: dict[str, Any], windows: Windows) -> tuple[bool, ...]:
    return (config.get("position_embedding_type") == "rope",) * len(windows)


# The small Granite 4 models, which have neither Mamba layers nor experts.
GRANITE_HYBRID = Family(
    "granitemoehybrid",
    biased=attention_biases,
    mixers=_attention_alone,
    rotates=_rotates_if_named,
    mlp_width=_shared_width,
    stored=GRANITE_HYBRID_NAMES,
    scales=granite_scales,
    defaults=GRANITE.defaults | {"shared_intermediate_size": 1024, "num_local_experts": 8},
)
MINICPM = Family(
    "minicpm",
    biased=llama_biases,
    scales=minicpm_scales,
    defaults=LLAMA.defaults | {"tie_word_embeddings": True, "scale_emb": 1, "dim_model_base": 1, "scale_depth": 1},
)

# --- norms that subtract the mean -------------------------------------------------------------------------------------


def _norms_of_cohere(config: dict[str, Any]) -> QKNorm:
    return "each head its own" if config["use_qk_norm"] else None


_COHERE_DEFAULTS = DEFAULTS | {
    "vocab_size": 256_000,
    "hidden_size": 8192,
    "intermediate_size": 22_528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "logit_scale": 0.0625,
    "use_qk_norm": False,
}
COHERE = Family(
    "cohere",
    biased=attention_biases,
    qk_norm=_norms_of_cohere,
    norm=_LAYER_NORM_WITHOUT_BIAS,
    norm_places=lambda config: PARALLEL,
    scales=cohere_scales,
    rotates_pairs=True,
    rope_theta=500_000.0,
    defaults=_COHERE_DEFAULTS,
)
COHERE2 = Family(
    "cohere2",
    windows=sliding_but_every("sliding_window_pattern", 4),
    biased=attention_biases,
    norm=_LAYER_NORM_WITHOUT_BIAS,
    norm_places=lambda config: PARALLEL,
    scales=cohere_scales,
    rotates=lambda config, windows: tuple(each is not None for each in windows),
    rotates_pairs=True,
    defaults=_COHERE_DEFAULTS | {"sliding_window": 4096},
)


def _norms_of_stablelm(config: dict[str, Any]) -> QKNorm:
    return "each head its own tensor" if config["qk_layernorm"] else None


def _places_of_stablelm(config: dict[str, Any]) -> NormPlaces:
    return PARALLEL if config["use_parallel_residual"] else BEFORE


STABLELM = Family(
    "stablelm",
    biased=lambda config: QKV if config["use_qkv_bias"] else (),
    qk_norm=_norms_of_stablelm,
    qk_norm_name="{}_layernorm",
    norm=_LAYER_NORM,
    norm_places=_places_of_stablelm,
    rotates_part=True,
    defaults=DEFAULTS
    | {
        "vocab_size": 50_304,
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.25,
        "use_qkv_bias": False,
        "qk_layernorm": False,
        "use_parallel_residual": False,
    },
)
PHI = Family(
    "phi",
    biased=lambda config: (*QKV, "o_proj", *MLP, "lm_head"),
    norm=_LAYER_NORM,
    norm_places=lambda config: PARALLEL,
    has_gate=False,
    rotates_part=True,
    stored=PHI_NAMES,
    defaults=DEFAULTS
    | {
        "vocab_size": 51_200,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
    },
)

# --- no gate ----------------------------------------------------------------------------------------------------------

NEMOTRON = Family(
    "nemotron",
    biased=llama_biases,
    norm=NormForm(has_mean=True, has_bias=True, is_stored_less_one=True),
    has_gate=False,
    rotates_part=True,
    defaults=DEFAULTS
    | {
        "vocab_size": 256_000,
        "hidden_size": 6144,
        "intermediate_size": 24_576,
        "num_attention_heads": 48,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
    },
)
JAIS2 = Family(
    "jais2",
    biased=llama_biases,
    norm=_LAYER_NORM,
    has_gate=False,
    defaults=DEFAULTS
    | {
        "vocab_size": 150_272,
        "hidden_size": 3328,
        "intermediate_size": 26_624,
        "num_attention_heads": 26,
        "hidden_act": "relu2",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "mlp_bias": True,
    },
)
STARCODER2 = Family(
    "starcoder2",
    windows=every_layer,
    biased=ernie_biases,
    norm=_LAYER_NORM,
    has_gate=False,
    stored=STARCODER2_NAMES,
    defaults=DEFAULTS
    | {
        "vocab_size": 49_152,
        "hidden_size": 3072,
        "intermediate_size": 12_288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "use_bias": True,
        "tie_word_embeddings": True,
    },
)
