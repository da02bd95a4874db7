"""The families that can be written as GGUF: what llama.cpp calls their architecture and its tensors.

What a family can have and llama.cpp's architecture can't is refused in `check_expressible.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...models.config import ModelConfig

# Modules of a layer, by their names here.
_ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_NORMS_AROUND = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_QKV = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp has a family."""

    name: str
    modules: Mapping[str, str] = field(default_factory=lambda: _NORMS | _ATTENTION | _MLP)
    biased: frozenset[str] = frozenset()  # those that may have a bias, by their names there
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the rows of several in one, by names there
    rotates_pairs: bool = False  # the rows of queries and keys are in another order than where halves rotate
    ties_head: bool = False  # it has no head of its own
    keeps_windows: bool = False
    has_head_dim: bool = True  # else heads divide the hidden size
    renormalizes: bool = True  # the weights of a token's experts


_LLAMA = Architecture(
    "llama", biased=frozenset({*_QKV, "attn_output", "ffn_gate", "ffn_up", "ffn_down"}), rotates_pairs=True
)
_QWEN2 = Architecture("qwen2", biased=frozenset(_QKV), has_head_dim=False)
_QWEN3 = Architecture("qwen3", modules=_NORMS | _ATTENTION | _HEAD_NORMS | _MLP)
_GEMMA = Architecture("gemma", ties_head=True)
_ERNIE = Architecture("ernie4_5", biased=frozenset({*_QKV, "attn_output"}))

# By the families' names here.
ARCHITECTURES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": replace(_LLAMA, biased=frozenset()),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, name="qwen2moe", renormalizes=False),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, name="qwen3moe"),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, name="gemma2", modules=_NORMS_AROUND | _ATTENTION | _MLP, keeps_windows=True),
    "gemma3_text": Architecture("gemma3", modules=_NORMS_AROUND | _ATTENTION | _HEAD_NORMS | _MLP, keeps_windows=True),
    "phi3": Architecture("phi3", fused={"attn_qkv": _QKV, "ffn_up": ("ffn_gate", "ffn_up")}, has_head_dim=False),
    "ernie4_5": _ERNIE,
    "ernie4_5_moe": replace(_ERNIE, name="ernie4_5-moe"),
}


def experts_of(config: ModelConfig) -> dict[str, str]:
    """The modules of sparse layers, below a layer's name; an expert's number is left out."""
    if config.experts is None:
        return {}
    names = config.experts.names
    block = f"{names.block}." if names.block else ""
    kinds = ("gate", "up", "down")
    found = {f"{block}{names.router}": "ffn_gate_inp"}
    for kind, part in zip(kinds, names.gate_up_down, strict=True):
        found[f"{block}{names.experts}.{part}"] = f"ffn_{kind}_exps"
    for kind, part in zip(kinds, ("gate_proj", "up_proj", "down_proj"), strict=True):
        found[f"{block}{names.shared}.{part}"] = f"ffn_{kind}_shexp"
    if names.shared_gate is not None:
        found[f"{block}{names.shared_gate}"] = "ffn_gate_inp_shexp"
    return found
