"""The metadata of a GGUF file: what llama.cpp reads in place of config.json.

Keys and values are those that its own converter writes. Counts are integers, epsilons and bases floats.
"""

import math

from ....protocol.files.gguf.gemma import WINDOWS_BUT_EVERY
from ...models.config import ModelConfig
from ...models.rope_config import RopeConfig
from .architectures import Architecture
from .gguf_file import Value

_QUANTIZATION_VERSION = 2  # of the blocks' layouts


def model_metadata(config: ModelConfig, architecture: Architecture, name: str, file_type: int) -> dict[str, Value]:
    """All but the vocabulary."""
    heads, rope = config.heads[0], _usual_rope(config)
    own: dict[str, Value] = {
        "block_count": config.num_layers,
        "context_length": _context(config, architecture),
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": heads.num_kv_heads,
        "attention.key_length": heads.head_dim,
        "attention.value_length": heads.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.dimension_count": rope.rotary_dim,
        "rope.freq_base": rope.theta,
        "vocab_size": config.vocab_size,
        **_of_stretching(rope, architecture),
        **_of_windows(config, architecture),
        **_of_experts(config),
        **_of_caps(config),
    }
    return {
        "general.architecture": architecture.name,
        "general.type": "model",
        "general.name": name,
        "general.file_type": file_type,
        "general.quantization_version": _QUANTIZATION_VERSION,
        **{f"{architecture.name}.{key}": value for key, value in own.items()},
    }


def _usual_rope(config: ModelConfig) -> RopeConfig:
    """Of layers without a window, where the others have one of their own."""
    layer = next((layer for layer, window in enumerate(config.windows) if window is None), 0)
    return config.ropes.of(layer) or config.ropes.ropes[0]


def _context(config: ModelConfig, architecture: Architecture) -> int:
    """Where llama.cpp knows no windows for the architecture, no longer than the shortest: up to there it computes the
    same."""
    windows = [window for window in config.windows if window is not None]
    return min([config.max_position, *([] if architecture.keeps_windows else windows)])


def _of_stretching(rope: RopeConfig, architecture: Architecture) -> dict[str, Value]:
    if rope.kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": rope.factor}
    if rope.kind == "yarn":
        betas = {key: rope.figures[key] for key in ("beta_fast", "beta_slow") if rope.figures.get(key) is not None}
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": rope.factor,
            "rope.scaling.original_context_length": rope.original_context,
            **{f"rope.scaling.yarn_{key}": float(beta) for key, beta in betas.items()},
        }
    if rope.kind == "longrope":
        return {
            "rope.scaling.original_context_length": rope.original_context,
            "rope.scaling.attn_factor": _factor_of_long_rope(rope),
        }
    # Phi-3's loader asks for a window, and takes 0 for none.
    return {"rope.scaling.original_context_length": rope.original_context} if architecture.name == "phi3" else {}


def _factor_of_long_rope(rope: RopeConfig) -> float:
    if (given := rope.figures.get("attention_factor")) is not None:
        return float(given)
    stretch = rope.figures.get("factor") or rope.trained_context / rope.original_context
    return math.sqrt(1 + math.log(stretch) / math.log(rope.original_context)) if stretch > 1 else 1.0


def _of_windows(config: ModelConfig, architecture: Architecture) -> dict[str, Value]:
    window = next((each for each in config.windows if each is not None), None)
    if not architecture.keeps_windows or window is None:
        return {"attention.sliding_window": 0} if architecture.name == "phi3" else {}
    has_window = [each is not None for each in config.windows]
    found: dict[str, Value] = {"attention.sliding_window": window}
    every = WINDOWS_BUT_EVERY[architecture.name]
    if has_window != [(layer + 1) % every != 0 for layer in range(config.num_layers)]:
        found["attention.sliding_window_pattern"] = has_window
    if len(config.ropes.ropes) > 1 and (rope := config.ropes.of(has_window.index(True))) is not None:
        found["rope.freq_base_swa"] = rope.theta
    return found


def _of_experts(config: ModelConfig) -> dict[str, Value]:
    experts = config.experts
    if experts is None:
        return {}
    found: dict[str, Value] = {"expert_count": experts.num_experts, "expert_used_count": experts.top_k}
    if config.family.name != "mixtral":  # whose experts are as wide as feed_forward_length
        found["expert_feed_forward_length"] = experts.width
    if experts.shared_width:
        found["expert_shared_feed_forward_length"] = experts.shared_width
    if config.family.name == "ernie4_5_moe":
        found |= {"interleave_moe_layer_step": 1, "leading_dense_block_count": experts.is_sparse.index(True)}
        if experts.shared_width:
            found["expert_shared_count"] = experts.shared_width // experts.width
    return found


def _of_caps(config: ModelConfig) -> dict[str, Value]:
    caps = {"attn_logit_softcapping": config.scales.score_cap, "final_logit_softcapping": config.scales.logit_cap}
    return {key: cap for key, cap in caps.items() if cap is not None}
