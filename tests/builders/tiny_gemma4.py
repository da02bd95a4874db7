"""Tensors of tiny models of Gemma 4: heads that differ by layer, keys that others read, embeddings of each layer, and
experts beside the MLP."""

from typing import Any

from .tiny_hybrids import inner_size

Shapes = dict[str, tuple[int, ...]]
GEMMA4 = "gemma4_text"
# Keys of the mixture, as 26B-A4B has them.
MIXTURE = {
    "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 36,
    "attention_k_eq_v": True, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False, "hidden_size_per_layer_input": 0, "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
MIXTURE_THAT_READS = MIXTURE | {
    "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 20, "top_k_experts": 5,
    "num_experts": 5, "attention_bias": True, "num_hidden_layers": 7,
    "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2 + ["full_attention"],
}  # fmt: skip


def projections(config: dict[str, Any], layer: int) -> dict[str, tuple[int, int]]:
    """Of one layer: outputs, inputs."""
    hidden, size = config["hidden_size"], head_dim(config, layer)
    query, inner = config["num_attention_heads"] * size, inner_size(config)
    key = _own(config, layer).get("num_key_value_heads", config["num_key_value_heads"]) * size
    attention = {"q_proj": (query, hidden), "k_proj": (key, hidden), "v_proj": (key, hidden), "o_proj": (hidden, query)}
    if reads_others(config, layer):
        attention = {name: attention[name] for name in ("q_proj", "o_proj")}
        inner *= 1 + config["use_double_wide_mlp"]
    elif config["attention_k_eq_v"] and _is_full(config, layer):
        del attention["v_proj"]
    found = {f"self_attn.{name}": shape for name, shape in attention.items()}
    found |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    if width := config["hidden_size_per_layer_input"]:
        found |= {"per_layer_input_gate": (width, hidden), "per_layer_projection": (hidden, width)}
    return found


def layer_vectors(config: dict[str, Any], layer: int) -> Shapes:
    """The other tensors of a layer, but for the usual norms. Experts lie in one tensor for all, as published."""
    found: Shapes = {"layer_scalar": (1,), "self_attn.q_norm.weight": (head_dim(config, layer),)}
    if not reads_others(config, layer):
        found["self_attn.k_norm.weight"] = (head_dim(config, layer),)
    if config["hidden_size_per_layer_input"]:
        found["post_per_layer_input_norm.weight"] = (config["hidden_size"],)
    return found | (_experts(config) if config.get("enable_moe_block") else {})


def _experts(config: dict[str, Any]) -> Shapes:
    count, hidden, width = (config[key] for key in ("num_experts", "hidden_size", "moe_intermediate_size"))
    norms = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
    return {f"{name}.weight": (hidden,) for name in norms} | {
        "router.proj.weight": (count, hidden),
        "router.scale": (hidden,),
        "router.per_expert_scale": (count,),
        "experts.gate_up_proj": (count, 2 * width, hidden),
        "experts.down_proj": (count, hidden, width),
    }


def model_tensors(config: dict[str, Any]) -> Shapes:
    """Those of no layer that other models haven't got."""
    if not (width := config["hidden_size_per_layer_input"]):
        return {}
    together = config["num_hidden_layers"] * width
    return {
        "model.embed_tokens_per_layer.weight": (config["vocab_size_per_layer_input"], together),
        "model.per_layer_model_projection.weight": (together, config["hidden_size"]),
        "model.per_layer_projection_norm.weight": (width,),
    }


def reads_others(config: dict[str, Any], layer: int) -> bool:
    return bool(layer >= config["num_hidden_layers"] - config["num_kv_shared_layers"])


def head_dim(config: dict[str, Any], layer: int) -> int:
    return int(_own(config, layer).get("head_dim", config["head_dim"]))


def _own(config: dict[str, Any], layer: int) -> dict[str, Any]:
    if "per_layer_config" in config:
        return dict(config["per_layer_config"].get(str(layer), {}))
    if not _is_full(config, layer):
        return {}
    heads = config.get("num_global_key_value_heads") if config["attention_k_eq_v"] else None
    return {"head_dim": config["global_head_dim"]} | ({} if heads is None else {"num_key_value_heads": heads})


def _is_full(config: dict[str, Any], layer: int) -> bool:
    return layer == config["num_hidden_layers"] - 1 or config["layer_types"][layer] == "full_attention"
