"""Rotary positions: converts metadata and factor tensors to `rope_theta` and `rope_scaling`, and back.

For `llama3`, llama.cpp stores only a factor for each angle (`rope_freqs.weight`). If Meta's parameters give exactly
these factors, the config gets the parameters; otherwise it gets the factors, as `longrope`, which divides each angle's
frequency by its factor.
"""

import math
from typing import Any

from ....fields.rules import shown
from ..refusals import UNSUPPORTED, MalformedError
from .facts import WritableFact
from .model_metadata import Config, ModelMetadata

_USUAL_THETA = 10_000.0
# In every published `llama3` config.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_TOLERANCE = 1e-4  # for factors computed in float32
_NONE = ("none", "linear", "yarn", "longrope")
_TYPE, _FACTOR, CONTEXT = (f"rope.scaling.{name}" for name in ("type", "factor", "original_context_length"))
_BETAS = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}
_YARN_FACTOR, _LONG_FACTOR = "rope.scaling.yarn_attn_factor", "rope.scaling.attn_factor"


class Rope(WritableFact):
    """The positions of layers that are all alike, or of those without a window."""

    def __call__(self, given: ModelMetadata) -> Config:
        return rope(given, given.count("rope.dimension_count", given.head_dim))

    def write(self, config: Config) -> dict[str, Any]:
        """Write the keys; the factors of `llama3` and `longrope` are tensors."""
        scaling = config["rope_scaling"]
        kind, context = scaling["rope_type"], {CONTEXT: scaling["original_max_position_embeddings"]}
        if kind == "longrope":
            return context | {_LONG_FACTOR: scaling["attention_factor"]}
        if kind not in ("linear", "yarn"):
            return {}
        stretched = {_TYPE: kind, _FACTOR: scaling["factor"]}
        if kind == "linear":
            return stretched
        betas = {key: float(scaling[name]) for name, key in _BETAS.items() if scaling.get(name) is not None}
        return stretched | context | betas


def rope(given: ModelMetadata, head_dim: int) -> Config:
    """Read the config; `head_dim` is the number of rotated elements of a head."""
    theta = given.number("rope.freq_base", _USUAL_THETA)
    if theta <= 0:
        raise MalformedError(f"has {given.architecture}.rope.freq_base={shown(theta)}, and angles need one above 0")
    return {"rope_theta": theta, "rope_scaling": _scaling(given, theta, head_dim)}


def _scaling(given: ModelMetadata, theta: float, head_dim: int) -> Config | None:
    if (long := given.factors("rope_factors_long.weight")) is not None:
        return _longrope(given, long)
    if (factors := given.factors("rope_freqs.weight")) is not None:
        return _of_factors(given, factors, theta, head_dim)
    factor = given.number(_FACTOR, given.number("rope.scale_linear", 1.0))
    kind = given.text(_TYPE, "linear")
    if kind not in _NONE:
        raise MalformedError(f"has {given.architecture}.{_TYPE}={shown(kind)}", UNSUPPORTED)
    if kind == "yarn":
        own = _BETAS | {"attention_factor": _YARN_FACTOR}
        return yarn(given) | {name: given.number(key) for name, key in own.items() if given.has(key)}
    if kind == "linear" and factor not in (0, 1):
        return {"rope_type": "linear", "factor": factor}
    return None


def stretches_by_yarn(given: ModelMetadata) -> bool:
    return given.text(_TYPE, "none") == "yarn"


def yarn(given: ModelMetadata) -> Config:
    """The keys that all families with YaRN have."""
    factor, context = given.number(_FACTOR, 1.0), original_context(given)
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": context}


def yarn_betas(given: ModelMetadata) -> Config:
    """For families whose configs always have them."""
    usual = {"beta_fast": 32.0, "beta_slow": 1.0}
    return {name: given.number(_BETAS[name], value) for name, value in usual.items()}


def original_context(given: ModelMetadata) -> int:
    return given.count(CONTEXT, given.count("context_length"))


def _longrope(given: ModelMetadata, long: list[float]) -> Config:
    short = given.factors("rope_factors_short.weight")
    if short is None:
        raise MalformedError("has factors of long contexts (rope_factors_long) without those of short ones")
    context = original_context(given)
    scaling = {
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "original_max_position_embeddings": context,
    }
    return scaling | ({"attention_factor": given.number(_LONG_FACTOR)} if given.has(_LONG_FACTOR) else {})


def _of_factors(given: ModelMetadata, factors: list[float], theta: float, head_dim: int) -> Config | None:
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
    """The factors as llama.cpp's converter computes them."""
    low, high, original = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"], 8192
    found = []
    for number in range(0, head_dim, 2):
        length = 2 * math.pi * theta ** (number / head_dim)
        smooth = min(max((original / length - low) / (high - low), 0.0), 1.0)
        found.append(1 / ((1 - smooth) / factor + smooth))
    return found


def rotated_part(given: ModelMetadata) -> Config:
    """The share of each head that rotates, for families in which it may be less than all."""
    whole = given.head_dim
    count = given.count("rope.dimension_count", whole)
    if not 0 < count <= whole:
        raise MalformedError(f"rotates {count} of a head's {whole} numbers")
    share = count / whole
    return {"partial_rotary_factor": share if int(whole * share) == count else math.nextafter(share, 1)}
