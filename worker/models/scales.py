"""The factors and caps that a family's config gives for embeddings, updates, scores and logits. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol.fields.rules import shown
from .rope_config import is_positive


@dataclass(frozen=True)
class Scales:
    """What values are multiplied by, and bounded to, on their way through a decoder."""

    embedding: float = 1.0
    rounds_embedding: bool = False  # that factor, to the number format of the table
    update: float = 1.0  # of what each part adds to the stream
    scores: float | None = None  # of a query's products with keys; None: 1 / √head_dim
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


def _factor(config: Mapping[str, Any], key: str) -> float:
    value = config[key]
    if not is_positive(value):
        raise ValueError(f"{key} must be a positive number, and is {shown(value)}")
    return float(value)
