"""Assigns a rope to each layer of a model: one for all layers, one for each kind of layer, or none for some.

Transformers 5 writes `rope_parameters` with an object for each kind of layer; 4 had a base for layers with a window
next to the others' (`rope_local_base_freq`), and never stretched them. Reads no weights and imports no torch.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.fields.rules import shown
from ...records import dataclass
from .families.family import FULL, SLIDING, Family, Windows
from .parts.rope import RopeConfig

_READ_WITHOUT_USE = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
# Parameters of any rope that are independent of its scaling.
_UNSCALED = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")


@dataclass(frozen=True)
class LayerRopes:
    """The ropes of a model."""

    ropes: tuple[RopeConfig, ...]
    by_layer: tuple[int | None, ...]  # rope number by layer; None: it doesn't rotate

    def of(self, layer: int) -> RopeConfig | None:
        number = self.by_layer[layer]
        return None if number is None else self.ropes[number]

    @property
    def stretches(self) -> tuple[int, ...]:
        """The lengths that requests are rotated for, if that depends on a request's length. All ropes of a model
        share them, so that one row serves in the tables of all."""
        return tuple(sorted({length for rope in self.ropes if len(rope.stretches) > 1 for length in rope.stretches}))


def read_layer_ropes(
    config: dict[str, Any], family: Family, windows: Windows, read: Callable[[dict[str, Any], int], RopeConfig]
) -> LayerRopes:
    """`read` takes a layer's config and its number."""
    rotates = family.rotates(config, windows)
    if not any(rotates):
        for key in _READ_WITHOUT_USE:
            config.get(key)
    ropes: list[RopeConfig] = []
    by_layer: list[int | None] = [None] * len(windows)
    kinds = _kinds(config, windows, family) if family.ropes_by_kind else None
    for layer in range(len(windows)):
        if rotates[layer]:
            said = config if kinds is None else _said_to(kinds[layer], config, family)
            rope = read(said, layer)
            if rope not in ropes:
                ropes.append(rope)
            by_layer[layer] = ropes.index(rope)
    return LayerRopes(tuple(ropes), tuple(by_layer))


def rescaled(config: dict[str, Any], family: Family, scaling: Mapping[str, Any]) -> dict[str, Any]:
    """The config with another scaling of its positions.

    Bases and axes stay. If layers differ, those with a window keep their rope.
    """
    older = _object(config.get("rope_scaling"))
    newer = _object(config.get("rope_parameters") or family.defaults.get("rope_parameters"))
    if "original_max_position_embeddings" in scaling:  # which overrides the outer figure
        config = config | {"original_max_position_embeddings": None}
    if any(isinstance(each, dict) for each in newer.values()):
        full = {**_unscaled(_object(newer.get(FULL)), older), **scaling}
        return config | {"rope_scaling": None, "rope_parameters": newer | {FULL: full}}
    figures = {**_unscaled(newer, older), **scaling}
    if family.ropes_by_kind:  # in transformers 4's form
        return config | {"rope_scaling": figures}
    return config | {"rope_scaling": None, "rope_parameters": figures}


def _unscaled(*figures: dict[str, Any]) -> dict[str, Any]:
    return {name: part[name] for part in figures for name in _UNSCALED if part.get(name) is not None}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _said_to(kind: str, config: dict[str, Any], family: Family) -> dict[str, Any]:
    """The config with the rope parameters of this kind of layer."""
    older = config.get("rope_scaling") or {}
    newer = config.get("rope_parameters") or family.defaults.get("rope_parameters") or {}
    if not all(isinstance(each, dict) for each in (older, newer)):
        return config
    own = newer.get(kind) or {}
    if newer and not any(each in newer for each in (FULL, SLIDING)):
        raise ValueError(
            f"rope_parameters is {shown(newer)}, and should have an object for each of {', '.join((FULL, SLIDING))}"
        )
    if kind == FULL:
        own = own | older
    elif family.window_theta is not None:
        key, theta = family.window_theta
        own = {"rope_theta": config.get(key) or theta} | own
    return config | {"rope_scaling": None, "rope_parameters": own}


def _kinds(config: dict[str, Any], windows: Windows, family: Family) -> list[str]:
    types = config.get("layer_types")
    if isinstance(types, list) and len(types) == len(windows):
        return [*types[:-1], FULL] if family.ends_full else types
    return [FULL if window is None else SLIDING for window in windows]
