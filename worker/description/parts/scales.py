"""The factors and caps of embeddings, updates, scores and logits in a family's config. Imports no torch."""

import math
from collections.abc import Mapping
from typing import Any

from ....protocol.fields.rules import shown
from ....records import dataclass
from .rope import is_positive


@dataclass(frozen=True)
class Scales:
    """Factors and bounds of values within a decoder."""

    embedding: float = 1.0
    rounds_embedding: bool = False  # rounds this factor to the number format of the table
    update: float = 1.0  # factor of the update that each part adds to the stream
    scores: float | None = None  # factor of attention scores; None: 1 / √head_dim
    score_cap: float | None = None  # a score s becomes cap × tanh(s / cap)
    logits: float = 1.0
    logit_cap: float | None = None  # likewise


def unscaled(config: Mapping[str, Any]) -> Scales:
    return Scales()


def granite_scales(config: Mapping[str, Any]) -> Scales:
    return Scales(
        embedding=_factor(config, "embedding_multiplier"),
        update=_factor(config, "residual_multiplier"),
        scores=_factor(config, "attention_multiplier"),
        logits=1 / _factor(config, "logits_scaling"),
    )


def gemma_scales(config: Mapping[str, Any]) -> Scales:
    return Scales(embedding=_root_of_width(config), rounds_embedding=True)


def gemma2_scales(config: Mapping[str, Any]) -> Scales:
    return Scales(
        embedding=_root_of_width(config),
        rounds_embedding=True,
        scores=1 / math.sqrt(_factor(config, "query_pre_attn_scalar")),
        score_cap=_cap(config, "attn_logit_softcapping"),
        logit_cap=_cap(config, "final_logit_softcapping"),
    )


def gemma4_scales(config: Mapping[str, Any]) -> Scales:
    return Scales(
        embedding=_root_of_width(config),
        rounds_embedding=True,
        scores=1.0,
        logit_cap=_cap(config, "final_logit_softcapping"),
    )


def cohere_scales(config: Mapping[str, Any]) -> Scales:
    return Scales(logits=_factor(config, "logit_scale"))


def minicpm_scales(config: Mapping[str, Any]) -> Scales:
    """MiniCPM's factors; `dim_model_base` is the width of a small model on which the large one was tuned."""
    return Scales(
        embedding=_factor(config, "scale_emb"),
        update=_factor(config, "scale_depth") / math.sqrt(config["num_hidden_layers"]),
        logits=_factor(config, "dim_model_base") / config["hidden_size"],
    )


def _root_of_width(config: Mapping[str, Any]) -> float:
    return math.sqrt(config["hidden_size"])


def _cap(config: Mapping[str, Any], key: str) -> float | None:
    return None if config[key] is None else _factor(config, key)


def _factor(config: Mapping[str, Any], key: str) -> float:
    value = config[key]
    if not is_positive(value):
        raise ValueError(f"{key} must be a positive number, and is {shown(value)}")
    return float(value)
