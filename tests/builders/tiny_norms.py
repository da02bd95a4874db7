"""The norms of tiny models: which a layer has, by the names in its checkpoint, and what their weights are like."""

from typing import Any

from .tiny_hybrids import HYBRIDS

_BEFORE = ("input_layernorm", "post_attention_layernorm")
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
# Where a family has others than one before each part.
_LAYER = {
    "olmo2": _AFTER,
    "exaone4": _AFTER,
}
_TOGETHER = ("olmoe", "minimax_m2", "olmo2")  # a norm of all heads together
_BY_HEAD = ("qwen3", "qwen3_moe", "dots1", "hy_v3", "exaone4", *HYBRIDS)
BIASED: tuple[str, ...] = ()  # norms with a bias
# Families whose weights are stored minus one.
LESS_ONE: tuple[str, ...] = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


def layer_norms(family: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Those of the stream, or of what is added to it, as wide as it is."""
    return _LAYER.get(family, _BEFORE)


def head_norms(family: str, config: dict[str, Any], query: int, key: int, head_dim: int) -> dict[str, tuple[int, ...]]:
    """Those of queries and keys, which are so wide all together."""
    if family in _TOGETHER:
        return {"self_attn.q_norm.weight": (query,), "self_attn.k_norm.weight": (key,)}
    if family in _BY_HEAD or config.get("use_qk_norm"):
        return dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (head_dim,))
    return {}
