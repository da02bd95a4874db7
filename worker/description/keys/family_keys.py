"""Keys that mean something to one family alone: rows for `unread_keys.py`.

A key that is read needs no row, and neither does one that means the same for all families (`mechanisms.py`), nor one
that transformers' class of the family doesn't compute with, such as those of training.
"""

from typing import Any, NamedTuple


class FamilyKeys(NamedTuple):
    harmless: str = ""  # keys that do nothing here although they name a mechanism, separated by spaces
    fixed: dict[str, tuple[Any, ...]] = {}  # keys with the only values that are supported
    # Aliases that transformers' class accepts (and sometimes writes) for a key, with the name that is read.
    other_names: dict[str, str] = {}


_ERNIE_MOE = FamilyKeys(
    fixed={
        "moe_gate": ("topk", "top2_fused"),
        "moe_gate_act": ("softmax",),
        "moe_norm_gate_logits": (True,),
        "moe_group_experts": (False,),
        "moe_use_hard_gate": (False,),
    },
    other_names={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
)

_DRAFT_LAYERS = {"num_mtp_layers": "num_nextn_predict_layers"}
_SIGMOID = {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)}
_NORMED = {"use_qk_norm": (True,)}  # in Qwen3-Coder's configs

# In Qwen3.5's configs.
_GATED = {"attn_output_gate": (True,), "output_gate_type": ("swish", "silu")}
_CONVOLVING = {"block_use_swiglu": (True,), "use_pos_enc": (True,)}
_LFM2_NAMES = {
    "norm_eps": "rms_norm_eps",
    "tie_embedding": "tie_word_embeddings",
    "block_ff_dim": "intermediate_size",
    **dict.fromkeys(("block_dim", "conv_dim", "conv_dim_out"), "hidden_size"),
}
_LAYER_NORM = {"layer_norm_eps": "rms_norm_eps"}
_ENCODER = FamilyKeys(
    fixed={"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)},
    other_names=_LAYER_NORM,
)
# Names from their authors' code.
_COHERE: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("rope_gptj",),
    "use_gated_activation": (True,),
    "use_parallel_block": (True,),
}
# Keys of Qwen2-VL's encoder.
_PATCHES = FamilyKeys(other_names={"in_chans": "in_channels", "spatial_patch_size": "patch_size"})

FAMILY_KEYS: dict[str, FamilyKeys] = {
    "qwen2_vl_vision": _PATCHES,
    "qwen2_5_vl_vision": _PATCHES,
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "modernbert": FamilyKeys(
        harmless="deterministic_flash_attn sparse_prediction decoder_bias",
        other_names={"norm_eps": "rms_norm_eps", "global_rope_theta": "rope_theta"},
    ),
    "cohere": FamilyKeys(fixed=_COHERE, other_names=_LAYER_NORM),
    "cohere2": FamilyKeys(
        fixed=_COHERE | {"order_of_interleaved_layers": ("local_attn_first",), "use_qk_norm": (False,)},
        other_names=_LAYER_NORM,
    ),
    "gemma4_text": FamilyKeys(fixed={"use_bidirectional_attention": ("vision",)}),  # for picture tokens
    "granitemoehybrid": FamilyKeys(
        harmless="mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state mamba_expand mamba_n_groups "
        "mamba_n_heads mamba_proj_bias",
        other_names={"layers_block_type": "layer_types"},
    ),
    "jais2": FamilyKeys(other_names=_LAYER_NORM),
    "nemotron": FamilyKeys(other_names={"norm_eps": "rms_norm_eps", "rope_percent": "partial_rotary_factor"}),
    "phi": FamilyKeys(other_names=_LAYER_NORM),
    "stablelm": FamilyKeys(other_names=_LAYER_NORM),
    "starcoder2": FamilyKeys(
        fixed={"norm_type": ("layer_norm",), "mlp_type": ("default",)},
        other_names={"norm_epsilon": "rms_norm_eps"},
    ),
    "deepseek_v2": FamilyKeys(
        fixed={"scoring_func": ("softmax",), "rope_interleave": (True,)},
        other_names={"num_experts": "n_routed_experts"},
    ),
    "deepseek_v3": FamilyKeys(fixed=_SIGMOID, other_names=_DRAFT_LAYERS | {"num_local_experts": "n_routed_experts"}),
    "dots1": FamilyKeys(
        fixed={"scoring_func": ("sigmoid", "noaux_tc"), "topk_method": ("noaux_tc",)},
        other_names={"num_local_experts": "n_routed_experts"},
    ),
    "ernie4_5_moe": _ERNIE_MOE,
    "ernie4_5_vl_moe_text": _ERNIE_MOE,
    "ernie4_5_vl_moe_vision": FamilyKeys(
        fixed={"temporal_merge_size": (2,), "mlp_ratio": (4,)},
        other_names={"embed_dim": "hidden_size", "in_chans": "in_channels", "spatial_patch_size": "patch_size"},
    ),
    "glm4_moe": FamilyKeys(fixed=_SIGMOID, other_names=_DRAFT_LAYERS | {"num_local_experts": "n_routed_experts"}),
    "glm4_moe_lite": FamilyKeys(
        fixed=_SIGMOID, other_names={"num_local_experts": "n_routed_experts", "head_dim": "qk_rope_head_dim"}
    ),
    "gpt_oss": FamilyKeys(other_names={"num_experts": "num_local_experts"}),
    "hy_v3": FamilyKeys(
        fixed=dict.fromkeys(
            ("route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias", "qk_norm"), (True,)
        ),
        other_names={"num_local_experts": "num_experts"},
    ),
    "hunyuan_v1_dense": FamilyKeys(fixed={"use_qk_norm": (True,), "use_cla": (False,)}),
    "internlm3": FamilyKeys(other_names={"qkv_bias": "attention_bias", "bias": "mlp_bias"}),
    "lfm2": FamilyKeys(fixed=_CONVOLVING, other_names=_LFM2_NAMES),
    "lfm2_moe": FamilyKeys(
        other_names={
            "norm_eps": "rms_norm_eps",
            "tie_embedding": "tie_word_embeddings",
            "num_local_experts": "num_experts",
        }
    ),
    "minimax_m2": FamilyKeys(
        fixed={
            "scoring_func": ("sigmoid",),
            "use_routing_bias": (True,),
            "use_qk_norm": (True,),
            "qk_norm_type": ("per_layer",),
        },
        other_names={"num_experts": "num_local_experts"},
    ),
    "mixtral": FamilyKeys(other_names={"num_experts": "num_local_experts"}),
    "olmoe": FamilyKeys(other_names={"num_local_experts": "num_experts"}),
    "phi3": FamilyKeys(fixed={"full_attn_mod": (1,), "interpolate_factor": (1,)}),  # in Phi-4-mini's config
    "qwen3": FamilyKeys(fixed=_NORMED),
    "qwen3_moe": FamilyKeys(fixed=_NORMED, other_names={"num_local_experts": "num_experts"}),
    "qwen3_vl_moe_text": FamilyKeys(other_names={"num_local_experts": "num_experts"}),
    "qwen3_5_moe_text": FamilyKeys(fixed=_GATED, other_names={"num_local_experts": "num_experts"}),
    "qwen3_5_text": FamilyKeys(fixed=_GATED),
    "qwen3_next": FamilyKeys(fixed=_GATED, other_names={"num_local_experts": "num_experts"}),
    "solar_open": FamilyKeys(fixed=_SIGMOID, other_names={"num_local_experts": "n_routed_experts"}),
}


def under_read_names(given: dict[str, Any], family: str) -> dict[str, Any]:
    """Rename aliases to the key that is read, unless both are present with different values."""
    names = FAMILY_KEYS.get(family, FamilyKeys()).other_names
    moved = {other for other, name in names.items() if other in given and given.get(name, given[other]) == given[other]}
    return {key: value for key, value in given.items() if key not in moved} | {
        names[other]: given[other] for other in moved
    }
