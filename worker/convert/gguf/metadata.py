"""The metadata of a GGUF file, which llama.cpp reads instead of config.json.

The architecture's row (`protocol/files/gguf/architectures/`) maps published config keys to keys of the header. Counts
are integers, epsilons and bases floats.
"""

import math
from typing import Any

from ....protocol.files.gguf.architectures.architecture import Architecture, Family
from ....protocol.files.gguf.architectures.facts import FULL, SLIDING, Windows
from ...description.config import ModelConfig
from ...description.parts.rope import RopeConfig
from .gguf_file import Value

_QUANTIZATION_VERSION = 2  # of the blocks' layouts


def model_metadata(config: ModelConfig, architecture: Architecture, name: str, file_type: int) -> dict[str, Value]:
    """All metadata except the vocabulary."""
    family = architecture.written_as(config.family.name)
    own = family.write(_published(config, family))
    return {
        "general.architecture": architecture.name,
        "general.type": "model",
        "general.name": name,
        "general.file_type": file_type,
        "general.quantization_version": _QUANTIZATION_VERSION,
        **{f"{architecture.name}.{key}": value for key, value in own.items()},
    }


def _published(config: ModelConfig, family: Family) -> dict[str, Any]:
    """The config in the family's published form; None for absent keys."""
    heads, rope = config.heads[0], _usual_rope(config)
    return {
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": heads.num_kv_heads,
        "head_dim": heads.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "rotary_dim": rope.rotary_dim,
        "rope_theta": rope.theta,
        "rope_scaling": _scaling(rope),
        "original_max_position_embeddings": rope.original_context,
        "attn_logit_softcapping": config.scales.score_cap,
        "final_logit_softcapping": config.scales.logit_cap,
        **_windows(config, family),
        **_experts(config),
    }


def _usual_rope(config: ModelConfig) -> RopeConfig:
    """The rope of layers without a window, if windowed layers have a different one."""
    layer = next((layer for layer, window in enumerate(config.windows) if window is None), 0)
    return config.ropes.of(layer) or config.ropes.ropes[0]


def _scaling(rope: RopeConfig) -> dict[str, Any]:
    found = {
        **rope.figures,
        "rope_type": rope.kind,
        "factor": rope.factor,
        "original_max_position_embeddings": rope.original_context,
    }
    return found | ({"attention_factor": _factor_of_long_rope(rope)} if rope.kind == "longrope" else {})


def _factor_of_long_rope(rope: RopeConfig) -> float:
    if (given := rope.figures.get("attention_factor")) is not None:
        return float(given)
    stretch = rope.figures.get("factor") or rope.trained_context / rope.original_context
    return math.sqrt(1 + math.log(stretch) / math.log(rope.original_context)) if stretch > 1 else 1.0


def _windows(config: ModelConfig, family: Family) -> dict[str, Any]:
    """If llama.cpp has no windows for the architecture, limit the context to the shortest window, where results are
    the same."""
    windows = [window for window in config.windows if window is not None]
    if not windows or family.fact(Windows) is None:
        return {"max_position_embeddings": min([config.max_position, *windows])}
    rope = config.ropes.of(config.windows.index(windows[0])) if len(config.ropes.ropes) > 1 else None
    return {
        "max_position_embeddings": config.max_position,
        "layer_types": [FULL if window is None else SLIDING for window in config.windows],
        "sliding_window": windows[0],
        "rope_local_base_freq": rope and rope.theta,
    }


def _experts(config: ModelConfig) -> dict[str, Any]:
    """Experts by the family's own names."""
    experts, mixture = config.experts, config.family.mixture
    if experts is None or mixture is None:
        return {}
    return {
        mixture.num_experts: experts.num_experts,
        mixture.top_k: experts.top_k,
        mixture.width: experts.width,
        "shared_expert_intermediate_size": experts.shared_width or None,
        "moe_num_shared_experts": experts.shared_width // experts.width or None,
        "first_k_dense_replace": experts.is_sparse.index(True),
    }
