"""Families whose layers mostly keep a state of fixed size instead of keys and values: gated delta nets and short
convolutions. Rows of the table in `table.py`."""

from dataclasses import replace

from ..parts import mixtures
from ..parts.mixers import delta_nets, fused_delta_nets, short_convolutions
from ..parts.norms import NormForm, NormPlaces
from ..parts.rope import in_turns
from ..parts.stored_names import LFM2_NAMES
from .dense import DEFAULTS
from .family import Family, attention_biases, by_head

_DELTA_DEFAULTS = DEFAULTS | {
    "num_attention_heads": 16,
    "max_position_embeddings": 32_768,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
QWEN3_5 = Family(
    "qwen3_5_text",
    biased=attention_biases,
    qk_norm=by_head,
    norm=NormForm(is_stored_less_one=True),
    gates_attention=True,
    mixers=delta_nets,
    rotates_part=True,
    axes=(in_turns, [11, 11, 10]),
    defaults=_DELTA_DEFAULTS | {"vocab_size": 248_320, "intermediate_size": 12_288, "num_key_value_heads": 4},
)
QWEN3_5_MOE = replace(
    QWEN3_5,
    name="qwen3_5_moe_text",
    mixture=mixtures.QWEN3_5_MOE,
    defaults=_DELTA_DEFAULTS
    | {
        "vocab_size": 248_320,
        "hidden_size": 2048,
        "intermediate_size": 512,  # unused: all layers are sparse
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 8,
        "num_experts": 256,
    },
)
QWEN3_NEXT = replace(
    QWEN3_5,
    name="qwen3_next",
    axes=None,
    mixers=fused_delta_nets,
    mixture=mixtures.QWEN3_NEXT,
    defaults=_DELTA_DEFAULTS
    | {
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 10,
        "num_experts": 512,
        "norm_topk_prob": True,
    },
)


def _adjusted_width(config: dict) -> int:
    """Two thirds of the config's width, times a factor, rounded up, unless a key says that it is final."""
    width = int(config["intermediate_size"])
    multiplier, multiple = config["block_ffn_dim_multiplier"], config["block_multiple_of"]
    if not config["block_auto_adjust_ff_dim"]:
        return width
    width = int(2 * width / 3)
    return width if multiplier is None else -(-int(multiplier * width) // multiple) * multiple


_LFM2_DEFAULTS = DEFAULTS | {
    "vocab_size": 65_536,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128_000,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "conv_L_cache": 3,
}
LFM2 = Family(
    "lfm2",
    biased=lambda config: ("in_proj", "out_proj", "conv") if config.get("conv_bias") else (),
    qk_norm=by_head,
    qk_norm_name="{}_layernorm",
    norm_places=lambda config: NormPlaces("operator_norm", None, "ffn_norm"),
    names=LFM2_NAMES,
    mixers=short_convolutions,
    mlp_width=_adjusted_width,
    rope_theta=1_000_000.0,
    defaults=_LFM2_DEFAULTS
    | {
        "hidden_size": 2560,
        "intermediate_size": 12_288,
        "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": True,
    },
)
LFM2_MOE = replace(
    LFM2,
    name="lfm2_moe",
    mixture=mixtures.LFM2_MOE,
    mlp_width=None,
    defaults=_LFM2_DEFAULTS
    | {
        "hidden_size": 2048,
        "intermediate_size": 7168,
        "moe_intermediate_size": 1792,
        "num_dense_layers": 2,
        "num_experts_per_tok": 4,
        "num_experts": 32,
        "use_expert_bias": True,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
    },
)
