"""The tensors of a tiny checkpoint's sparse layers, as each family names them; `tiny_model.py` writes them."""

from typing import Any

Shapes = dict[str, tuple[int, ...]]
_MLP = ("gate_proj", "up_proj", "down_proj")


def expert_shapes(config: dict[str, Any], layer: int) -> Shapes:
    """The tensors of a sparse layer's MLP, by their names below the layer's; empty where it is dense."""
    build = _EXPERTS.get(config["model_type"])
    return build(config, layer) if build else {}


def _named_experts(block: str, names: tuple[str, str, str], count: int, hidden: int, width: int) -> Shapes:
    shapes: Shapes = {f"{block}.gate.weight": (count, hidden)}
    for number in range(count):
        for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width)), strict=True):
            shapes[f"{block}.experts.{number}.{name}.weight"] = shape
    return shapes


def _shared(name: str, hidden: int, width: int) -> Shapes:
    return {
        f"{name}.gate_proj.weight": (width, hidden),
        f"{name}.up_proj.weight": (width, hidden),
        f"{name}.down_proj.weight": (hidden, width),
    }


def _mixtral_experts(config: dict[str, Any], layer: int) -> Shapes:
    count, hidden, width = (config[key] for key in ("num_local_experts", "hidden_size", "intermediate_size"))
    return _named_experts("block_sparse_moe", ("w1", "w3", "w2"), count, hidden, width)


def _minimax_experts(config: dict[str, Any], layer: int) -> Shapes:
    return _mixtral_experts(config, layer) | {
        "block_sparse_moe.e_score_correction_bias": (config["num_local_experts"],)
    }


def _hunyuan_experts(config: dict[str, Any], layer: int) -> Shapes:
    if config["mlp_layer_types"][layer] == "dense":
        return {}
    count, hidden, width = (config[key] for key in ("num_experts", "hidden_size", "moe_intermediate_size"))
    shapes = _named_experts("mlp", _MLP, count, hidden, width)
    shapes["mlp.router.gate.weight"] = shapes.pop("mlp.gate.weight")
    shapes["mlp.expert_bias"] = (count,)
    shared = _shared("mlp.shared_mlp", hidden, config["num_shared_experts"] * width)
    biases = {name.replace("weight", "bias"): shape[:1] for name, shape in shared.items()}
    return shapes | shared | (biases if config["mlp_bias"] else {})


def _qwen_experts(config: dict[str, Any], layer: int) -> Shapes:
    if layer in config.get("mlp_only_layers", ()) or (layer + 1) % config.get("decoder_sparse_step", 1):
        return {}
    hidden = config["hidden_size"]
    shapes = _named_experts("mlp", _MLP, config["num_experts"], hidden, config["moe_intermediate_size"])
    if shared := config.get("shared_expert_intermediate_size"):
        shapes |= _shared("mlp.shared_expert", hidden, shared)
        shapes["mlp.shared_expert_gate.weight"] = (1, hidden)
    return shapes


def _ernie_experts(config: dict[str, Any], layer: int) -> Shapes:
    start, end, interval = (config[f"moe_layer_{name}"] for name in ("start_index", "end_index", "interval"))
    if (layer + 1) % interval or not start <= layer <= (end if end >= 0 else layer):
        return {}
    count, hidden, width = (config[key] for key in ("moe_num_experts", "hidden_size", "moe_intermediate_size"))
    shapes = _named_experts("mlp", _MLP, count, hidden, width)
    shapes["mlp.moe_statics.e_score_correction_bias"] = (1, count)
    if number := config["moe_num_shared_experts"]:
        shapes |= _shared("mlp.shared_experts", hidden, number * width)
    return shapes


def _olmoe_experts(config: dict[str, Any], layer: int) -> Shapes:
    count, hidden, width = (config[key] for key in ("num_experts", "hidden_size", "intermediate_size"))
    return _named_experts("mlp", _MLP, count, hidden, width)


def _deepseek_experts(config: dict[str, Any], layer: int) -> Shapes:
    kinds = config.get("mlp_layer_types")
    if kinds[layer] == "dense" if kinds else layer < config["first_k_dense_replace"]:
        return {}
    count, hidden, width = (config[key] for key in ("n_routed_experts", "hidden_size", "moe_intermediate_size"))
    shapes = _named_experts("mlp", _MLP, count, hidden, width)
    if config["model_type"] != "deepseek_v2":
        shapes["mlp.gate.e_score_correction_bias"] = (count,)
    return shapes | _shared("mlp.shared_experts", hidden, config["n_shared_experts"] * width)


def _gpt_oss_experts(config: dict[str, Any], layer: int) -> Shapes:
    count, hidden, width = (config[key] for key in ("num_local_experts", "hidden_size", "intermediate_size"))
    return {
        "mlp.router.weight": (count, hidden),
        "mlp.router.bias": (count,),
        "mlp.experts.gate_up_proj": (count, hidden, 2 * width),
        "mlp.experts.gate_up_proj_bias": (count, 2 * width),
        "mlp.experts.down_proj": (count, width, hidden),
        "mlp.experts.down_proj_bias": (count, hidden),
    }


def _lfm2_experts(config: dict[str, Any], layer: int) -> Shapes:
    if layer < config["num_dense_layers"]:
        return {}
    count, hidden, width = (config[key] for key in ("num_experts", "hidden_size", "moe_intermediate_size"))
    shapes = _named_experts("feed_forward", ("w1", "w3", "w2"), count, hidden, width)
    return shapes | ({"feed_forward.expert_bias": (count,)} if config["use_expert_bias"] else {})


_EXPERTS = {
    "olmoe": _olmoe_experts,
    "dots1": _deepseek_experts,
    "solar_open": _deepseek_experts,
    "minimax_m2": _minimax_experts,
    "hy_v3": _hunyuan_experts,
    "glm4_moe": _deepseek_experts,
    "glm4_moe_lite": _deepseek_experts,
    "mixtral": _mixtral_experts,
    "qwen2_moe": _qwen_experts,
    "qwen3_moe": _qwen_experts,
    "qwen3_next": _qwen_experts,
    "qwen3_5_moe_text": _qwen_experts,
    "ernie4_5_moe": _ernie_experts,
    "deepseek_v2": _deepseek_experts,
    "deepseek_v3": _deepseek_experts,
    "lfm2_moe": _lfm2_experts,
    "gpt_oss": _gpt_oss_experts,
}
