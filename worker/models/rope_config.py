"""How a config asks for rotary positions: the variant, its figures, and the context that they give.

Two spellings mean the same: `rope_theta` with `rope_scaling` (transformers 4) and `rope_parameters` (5).
Knows nothing of torch; the angles are computed in `worker/layers/rope.py`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.rules import shown

# The figures without which a variant means nothing.
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
# Those that it may have.
_FURTHER = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor")


@dataclass(frozen=True)
class RopeConfig:
    """One variant of rotary positions."""

    kind: str  # a key of _NEEDED
    theta: float
    head_dim: int
    factor: float
    trained_context: int  # max_position_embeddings, before any stretching
    original_context: int  # what llama3 and yarn stretch from
    figures: dict[str, Any]  # the variant's own, of which those that are computed with are floats

    @property
    def stretches(self) -> tuple[int, ...]:
        """The lengths that requests are rotated for: a request is rotated for the shortest of these that holds it.

        `dynamic` depends on a request's length. Keys that were rotated for one length can't be used for another, so
        lengths double, and a request that grows is computed anew as seldom as its length doubles.
        """
        lengths = [self.trained_context if self.kind == "dynamic" else self.max_position]
        while lengths[-1] < self.max_position:
            lengths.append(min(2 * lengths[-1], self.max_position))
        return tuple(lengths)

    @property
    def max_position(self) -> int:
        """The context that the stretched positions reach."""
        if self.kind in ("linear", "dynamic"):
            return int(self.trained_context * self.factor)
        if self.kind == "yarn":
            return int(self.original_context * self.factor)
        return self.trained_context


def read_rope(config: dict[str, Any], head_dim: int, context: int, theta: float, path: Path) -> RopeConfig:
    """The variant that `config` asks for; `theta` is the family's own where the config names none."""
    figures = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(figures, dict):
        raise ConfigError(f"{path}: the figures of rotary positions must be an object, and are {shown(figures)}.")
    if any(isinstance(figure, dict) for figure in figures.values()):
        raise ConfigError(f"{path}: rotary positions that differ by layer ({', '.join(figures)}) are not supported.")
    kind = figures.get("rope_type") or figures.get("type") or "default"
    if kind not in _NEEDED:
        raise ConfigError(f"{path}: rope type {kind!r} is not supported; supported are {', '.join(_NEEDED)}.")
    known = (*_NEEDED[kind], *_FURTHER)
    missing = [name for name in _NEEDED[kind] if not is_positive(figures.get(name))]
    if missing:
        raise ConfigError(f"{path}: rope type {kind!r} needs {', '.join(missing)}, above 0.")
    if odd := [name for name in _FURTHER if figures.get(name) not in (None, 0) and not is_positive(figures[name])]:
        raise ConfigError(f"{path}: {odd[0]} must be a positive number, and is {shown(figures[odd[0]])}.")
    partial = figures.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if partial != 1.0 or head_dim % 2:
        raise ConfigError(f"{path}: heads of {head_dim} of which {partial:.0%} rotate are not supported.")
    original = config.get("original_max_position_embeddings") or figures.get("original_max_position_embeddings")
    theta = figures.get("rope_theta") or config.get("rope_theta") or theta
    if not is_positive(theta):
        raise ConfigError(f"{path}: rope_theta must be a positive number, and is {shown(theta)}.")
    return RopeConfig(
        kind=kind,
        theta=float(theta),
        head_dim=head_dim,
        factor=float(figures.get("factor") or 1.0),
        trained_context=context,
        original_context=int(original or context),
        figures=figures | {name: float(figures[name]) for name in known if is_positive(figures.get(name))},
    )


def is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf
