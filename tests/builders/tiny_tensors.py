"""Tensors of tiny checkpoints that aren't a Llama's, as each family names and stores them: norms, MLPs without a gate,
experts, and Gemma 4's heads that differ by layer, keys that others read, and embeddings of each layer.

`tiny_model.py` writes them.
"""

from typing import Any

from .tiny_hybrids import HYBRIDS, inner_size

Shapes = dict[str, tuple[int, ...]]

# --- dense layers -----------------------------------------------------------------------------------------------------

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


# --- experts ----------------------------------------------------------------------------------------------------------

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
    biases = {"block_sparse_moe.e_score_correction_bias": (count,)} if config["model_type"] == "minimax_m2" else {}
    return _named_experts("block_sparse_moe", ("w1", "w3", "w2"), count, hidden, width) | biases


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


_LIKE_DEEPSEEK = ("deepseek_v2", "deepseek_v3", "dots1", "glm4_moe", "glm4_moe_lite", "solar_open")
_EXPERTS = {
    **dict.fromkeys(("mixtral", "minimax_m2"), _mixtral_experts),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text"), _qwen_experts),
    **dict.fromkeys(_LIKE_DEEPSEEK, _deepseek_experts),
    "hy_v3": _hunyuan_experts,
    "ernie4_5_moe": _ernie_experts,
    "olmoe": _olmoe_experts,
    "gpt_oss": _gpt_oss_experts,
    "lfm2_moe": _lfm2_experts,
}


# --- Gemma 4 ----------------------------------------------------------------------------------------------------------

GEMMA4 = "gemma4_text"
# Keys of the mixture, as 26B-A4B has them.
MIXTURE = {
    "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 36,
    "attention_k_eq_v": True, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False, "hidden_size_per_layer_input": 0, "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
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
