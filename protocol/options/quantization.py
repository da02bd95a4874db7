"""The option `quantization`: one kind for the weights of all layers, or kinds by patterns of layer names.

    {"*": "int4", "*.down_proj": None, "lm_head": "int8"}

If several patterns match a layer, the last one counts, so general patterns come first. The config stores a mapping as
JSON text, which can be sent, compared and shown like any other option, and keeps the order.
"""

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ..errors import ConfigError
from ..fields.rules import shown
from ..fields.suggestion import suggestion

KINDS = ("int8", "int4", "wint8", "wint4")
# Experts may have their own kind, whether or not the model has any.
_EXPERTS = "*.experts.*"
_FASTDEPLOYS = ("quantization", "dense_quant_type", "moe_quant_type")
SENTENCE = f"must be one of {', '.join(KINDS)}, or a mapping of patterns of layers' names to these or None"

Kinds = dict[str, str | None]  # by pattern or name of layers; None: not quantized


def as_quantization(value: Any) -> str:
    """The option as the config stores it; raises ConfigError if a mapping has a wrong entry, otherwise ValueError."""
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        if value not in KINDS:
            raise ValueError
        return value
    given = json.loads(value) if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ValueError
    if not given.keys().isdisjoint(_FASTDEPLOYS):
        given = _by_pattern_of_fastdeploys(given)
    for pattern, kind in given.items():
        if not isinstance(pattern, str):
            raise ConfigError(f"quantization: {shown(pattern)} is no pattern of layers' names, such as '*.down_proj'.")
        if kind is not None and kind not in KINDS:
            raise ConfigError(
                f"quantization: {pattern!r} is given {shown(kind)}, and can be given {', '.join(KINDS)} or None."
                f"{suggestion(kind, KINDS)}"
            )
    return json.dumps(dict(given), ensure_ascii=False)


def _by_pattern_of_fastdeploys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert FastDeploy's mapping of all layers and of experts to kinds."""
    for name, kind in given.items():
        if name not in _FASTDEPLOYS or (name == "quantization" and kind != "mix_quant"):
            raise ConfigError(
                f"quantization: {shown(name)}={shown(kind)} is not supported next to dense_quant_type and "
                f"moe_quant_type.{suggestion(name, _FASTDEPLOYS) if name not in _FASTDEPLOYS else ''}"
            )
    kinds = {"*": given.get("dense_quant_type"), _EXPERTS: given.get("moe_quant_type")}
    if not any(kinds.values()):
        raise ConfigError(f"quantization: give dense_quant_type, moe_quant_type or both: {', '.join(KINDS)}.")
    return kinds


def by_pattern(quantization: str | None) -> Kinds:
    """The option as a mapping; a single kind applies to all layers."""
    if quantization is None:
        return {}
    if quantization in KINDS:
        return {"*": quantization}
    kinds: Kinds = json.loads(quantization)
    return kinds


def kinds_of_layers(quantization: str | None, layers: Iterable[str]) -> Kinds:
    """The kind of each of a model's layers; raises for a pattern that matches none."""
    kinds: Kinds = dict.fromkeys(layers)
    for pattern, kind in by_pattern(quantization).items():
        # A layer may also be given by its tensor's name.
        found = [layer for layer in kinds if fnmatchcase(layer, pattern.removesuffix(".weight"))]
        if not found and not (pattern == _EXPERTS and any(kinds.values())):
            raise ConfigError(f"quantization: {pattern!r} matches no layer of this model, which has {_named(kinds)}.")
        kinds |= dict.fromkeys(found, kind)
    return kinds


def named_layers(quantization: str | None, layers: Iterable[str]) -> set[str]:
    """The layers that the option gives a kind or None."""
    patterns = [pattern.removesuffix(".weight") for pattern in by_pattern(quantization)]
    return {layer for layer in layers if any(fnmatchcase(layer, pattern) for pattern in patterns)}


def _named(layers: Iterable[str]) -> str:
    """The names; those of repeated layers only once."""
    return ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".N.", layer) for layer in layers)) + " (N is a number)"
