"""Which models see what comes after a token, by their config.json: the front end and the worker must agree on it."""

from collections.abc import Mapping
from typing import Any

# How architectures of encoders begin.
ENCODERS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "ModernBert")


def architectures_of(config: Mapping[str, Any]) -> list[str]:
    named = config.get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def is_encoder(config: Mapping[str, Any]) -> bool:
    return any(name.startswith(ENCODERS) for name in architectures_of(config))


def sees_both_sides(config: Mapping[str, Any]) -> bool:
    """Return whether tokens see those after them: in encoders, and in decoders that were trained on for it."""
    return key_of_both_sides(config) is not None


def key_of_both_sides(config: Mapping[str, Any]) -> str | None:
    """Return the key that says that tokens see those after them."""
    pairs = (("is_causal", False), ("use_bidirectional_attention", True))
    if said := [key for key, value in pairs if config.get(key) is value]:  # both are read, as a config may have both
        return said[0]
    named = any("Bidirectional" in name for name in architectures_of(config))
    return "architectures" if named or is_encoder(config) else None
