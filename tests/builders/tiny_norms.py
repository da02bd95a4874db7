"""Tensors of tiny dense models that aren't a Llama's: norms, MLPs without a gate, names and layouts of checkpoints."""

from typing import Any

from .tiny_hybrids import HYBRIDS

Shapes = dict[str, tuple[int, ...]]

_BEFORE = ("input_layernorm", "post_attention_layernorm")
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
_AROUND = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_GLM = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
# Where a family has others than one before each part.
_LAYER = {
    **dict.fromkeys(("olmo2", "olmo3", "exaone4"), _AFTER),
    **dict.fromkeys(("gemma2", "gemma3_text", "gemma4_text"), _AROUND),
    "glm4": _GLM,
    "vaultgemma": ("input_layernorm", "pre_feedforward_layernorm"),
    **dict.fromkeys(("cohere", "cohere2", "phi"), ("input_layernorm",)),
}
_TOGETHER = ("olmoe", "minimax_m2", "olmo2", "olmo3")  # a norm of all heads together
_BY_HEAD = ("qwen3", "qwen3_moe", "dots1", "hy_v3", "gemma3_text", "exaone4", *HYBRIDS)
BIASED = ("stablelm", "nemotron", "jais2", "starcoder2", "phi")  # norms with a bias
LESS_ONE = (  # norms whose weights are stored minus one
    "gemma", "gemma2", "gemma3_text", "vaultgemma", "nemotron", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text",
)  # fmt: skip
_WITHOUT_GATE = ("nemotron", "arcee", "jais2", "starcoder2", "phi")
_QKV_ALONE = ("glm", "glm4", "stablelm")  # biased, and not what attention gives
# Stored names by those of a Llama; where two have one, they lie in one tensor.
_NAMES = {
    "phi3": {f"self_attn.{each}_proj": "self_attn.qkv_proj" for each in "qkv"}
    | {f"mlp.{each}_proj": "mlp.gate_up_proj" for each in ("gate", "up")},
    **{family: {f"mlp.{each}_proj": "mlp.gate_up_proj" for each in ("gate", "up")} for family in ("glm", "glm4")},
    "phi": {
        "self_attn.o_proj": "self_attn.dense", "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2",
    },
    "starcoder2": {"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"},
    "granitemoehybrid": {
        "mlp.gate_proj": "shared_mlp.input_linear", "mlp.up_proj": "shared_mlp.input_linear",
        "mlp.down_proj": "shared_mlp.output_linear",
    },
}  # fmt: skip


def layer_norms(family: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Those of the stream, or of what is added to it, as wide as it is."""
    names = _LAYER.get(family, _BEFORE)
    return names[:1] if config.get("use_parallel_residual") else names


def head_norms(family: str, config: dict[str, Any], query: int, key: int, head_dim: int) -> Shapes:
    """Those of queries and keys, which are so wide all together."""
    names = "self_attn.q_norm.weight", "self_attn.k_norm.weight"
    if family in _TOGETHER:
        return dict(zip(names, ((query,), (key,)), strict=True))
    if family == "hunyuan_v1_dense":
        return dict.fromkeys(("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight"), (head_dim,))
    if family == "cohere" and config.get("use_qk_norm"):
        return {name: (width // head_dim, head_dim) for name, width in zip(names, (query, key), strict=True)}
    if family in _BY_HEAD or config.get("use_qk_norm"):
        return dict.fromkeys(names, (head_dim,))
    if family == "stablelm" and config.get("qk_layernorm"):
        widths = (("q", query), ("k", key))
        heads = ((name, head) for name, width in widths for head in range(width // head_dim))
        return {f"self_attn.{name}_layernorm.norms.{head}.weight": (head_dim,) for name, head in heads}
    return {}


def is_there(family: str, name: str) -> bool:
    return family not in _WITHOUT_GATE or name != "mlp.gate_proj"


def is_biased(family: str, config: dict[str, Any], name: str) -> bool | None:
    """None: as most families are."""
    if family == "phi":
        return True
    if family in _QKV_ALONE:
        return name.endswith(("q_proj", "k_proj", "v_proj")) and bool(
            config.get("attention_bias") or config.get("use_qkv_bias")
        )
    return None


def as_stored(family: str, layer: Shapes) -> Shapes:
    """A layer's tensors under the names that they have in the family's checkpoints."""
    found: Shapes = {}
    for name, (rows, *rest) in layer.items():
        module, _, kind = name.rpartition(".")
        stored = f"{_NAMES.get(family, {}).get(module, module)}.{kind}" if module else kind
        found[stored] = (rows + found.get(stored, (0,))[0], *rest)
    return found
