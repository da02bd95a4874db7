"""Rotary positions: from the metadata and the tensors with factors to `rope_theta` and `rope_scaling`.

llama.cpp keeps of `llama3` no figures but a factor for each angle (`rope_freqs.weight`). Where Meta's figures give
these very factors they are written; otherwise the factors themselves are, as `longrope`, which divides each angle's
frequency by its own.
"""

import math
from typing import Any

from .....protocol.fields.rules import shown
from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .metadata import ModelMetadata

_USUAL_THETA = 10_000.0
# What every published config of `llama3` has.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_TOLERANCE = 1e-4  # of factors that were computed in float32
_NONE = ("none", "linear", "yarn", "longrope")


def rope(given: ModelMetadata, head_dim: int) -> dict[str, Any]:
    """`head_dim`: the numbers of a head that rotate."""
    theta = given.number("rope.freq_base", _USUAL_THETA)
    if theta <= 0:
        raise MalformedError(f"has {given.architecture}.rope.freq_base={shown(theta)}, and angles need one above 0")
    return {"rope_theta": theta, "rope_scaling": _scaling(given, theta, head_dim)}


def _scaling(given: ModelMetadata, theta: float, head_dim: int) -> dict[str, Any] | None:
    if (long := given.factors("rope_factors_long.weight")) is not None:
        return _longrope(given, long)
    if (factors := given.factors("rope_freqs.weight")) is not None:
        return _of_factors(given, factors, theta, head_dim)
    factor = given.number("rope.scaling.factor", given.number("rope.scale_linear", 1.0))
    kind = given.text("rope.scaling.type", "linear")
    if kind not in _NONE:
        raise MalformedError(f"has {given.architecture}.rope.scaling.type={shown(kind)}", UNSUPPORTED)
    if kind == "yarn":
        return yarn(given) | _own_figures(given)
    if kind == "linear" and factor not in (0, 1):
        return {"rope_type": "linear", "factor": factor}
    return None


def stretches_by_yarn(given: ModelMetadata) -> bool:
    return given.text("rope.scaling.type", "none") == "yarn"


def yarn(given: ModelMetadata) -> dict[str, Any]:
    """What all families that stretch so have."""
    return {
        "rope_type": "yarn",
        "factor": given.number("rope.scaling.factor", 1.0),
        "original_max_position_embeddings": _original_context(given),
    }


def yarn_betas(given: ModelMetadata) -> dict[str, Any]:
    """Where a family's configs always have them."""
    usual = {"beta_fast": 32.0, "beta_slow": 1.0}
    return {name: given.number(f"rope.scaling.yarn_{name}", value) for name, value in usual.items()}


def _own_figures(given: ModelMetadata) -> dict[str, Any]:
    """Where the file has them."""
    keys = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow", "attention_factor": "yarn_attn_factor"}
    return {name: given.number(f"rope.scaling.{key}") for name, key in keys.items() if given.has(f"rope.scaling.{key}")}


def _original_context(given: ModelMetadata) -> int:
    return given.count("rope.scaling.original_context_length", given.count("context_length"))


def _longrope(given: ModelMetadata, long: list[float]) -> dict[str, Any]:
    short = given.factors("rope_factors_short.weight")
    if short is None:
        raise MalformedError("has factors of long contexts (rope_factors_long) without those of short ones")
    scaling = {
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "original_max_position_embeddings": _original_context(given),
    }
    if given.has("rope.scaling.attn_factor"):
        scaling["attention_factor"] = given.number("rope.scaling.attn_factor")
    return scaling


def _of_factors(given: ModelMetadata, factors: list[float], theta: float, head_dim: int) -> dict[str, Any] | None:
    if len(factors) != head_dim // 2:
        raise MalformedError(f"has {len(factors):,} factors of rotation, and {head_dim // 2} angles")
    if all(each == 1 for each in factors):
        return None
    factor = max(factors)
    expected = _llama3_factors(theta, head_dim, factor)
    if all(math.isclose(each, other, rel_tol=_TOLERANCE) for each, other in zip(factors, expected, strict=True)):
        return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
    return {
        "rope_type": "longrope",
        "long_factor": factors,
        "short_factor": factors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": given.count("context_length"),
    }


def _llama3_factors(theta: float, head_dim: int, factor: float) -> list[float]:
    """As llama.cpp's converter computes them."""
    low, high, original = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"], 8192
    found = []
    for number in range(0, head_dim, 2):
        length = 2 * math.pi * theta ** (number / head_dim)
        smooth = min(max((original / length - low) / (high - low), 0.0), 1.0)
        found.append(1 / ((1 - smooth) / factor + smooth))
    return found
