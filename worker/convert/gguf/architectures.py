"""The families that can be written as GGUF: what llama.cpp calls their architecture, and which tensors it has there.

Names are the file's; which tensor of the model each is, `../../weights/gguf/` says for reading and for writing. What a
family can have and llama.cpp's architecture can't is refused in `check_expressible.py`.
"""

from dataclasses import dataclass, replace

_QKV = frozenset(("attn_q", "attn_k", "attn_v"))
_PLAIN = _QKV | {"attn_norm", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
_NORMS_BEHIND = frozenset(("post_attention_norm", "post_ffw_norm"))
_HEAD_NORMS = frozenset(("attn_q_norm", "attn_k_norm"))
_EXPERTS = frozenset(("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
_SHARED_EXPERT = frozenset(("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"))


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp has a family."""

    name: str
    parts: frozenset[str] = _PLAIN  # of a layer
    biased: frozenset[str] = frozenset()  # those that may have a bias
    ties_head: bool = False  # it has no head of its own
    keeps_windows: bool = False
    has_head_dim: bool = True  # else heads divide the hidden size
    renormalizes: bool = True  # the weights of a token's experts

    @property
    def fuses_mlp(self) -> bool:
        """Gate and up lie in one tensor."""
        return "ffn_gate" not in self.parts


_LLAMA = Architecture("llama", biased=_QKV | {"attn_output", "ffn_gate", "ffn_up", "ffn_down"})
_QWEN2 = Architecture("qwen2", biased=_QKV, has_head_dim=False)
_QWEN3 = Architecture("qwen3", parts=_PLAIN | _HEAD_NORMS)
_GEMMA = Architecture("gemma", ties_head=True)
_GEMMA2 = Architecture("gemma2", parts=_PLAIN | _NORMS_BEHIND, ties_head=True, keeps_windows=True)
_ERNIE = Architecture("ernie4_5", biased=_QKV | {"attn_output"})
_PHI3 = Architecture("phi3", parts=_PLAIN - _QKV - {"ffn_gate"} | {"attn_qkv"}, has_head_dim=False)

# By the families' names here.
ARCHITECTURES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": replace(_LLAMA, parts=_PLAIN | _EXPERTS, biased=frozenset()),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(
        _QWEN2, name="qwen2moe", parts=_PLAIN | _EXPERTS | _SHARED_EXPERT | {"ffn_gate_inp_shexp"}, renormalizes=False
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, name="qwen3moe", parts=_QWEN3.parts | _EXPERTS),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": replace(_GEMMA2, name="gemma3", parts=_GEMMA2.parts | _HEAD_NORMS, ties_head=False),
    "phi3": _PHI3,
    "ernie4_5": _ERNIE,
    "ernie4_5_moe": replace(
        _ERNIE,
        name="ernie4_5-moe",
        parts=_PLAIN | _EXPERTS | _SHARED_EXPERT,
        biased=_ERNIE.biased | {"exp_probs_b"},
    ),
}
