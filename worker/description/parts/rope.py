"""Reads a config's rotary positions: the variant, its parameters, and the resulting context.

Two spellings mean the same: `rope_theta` with `rope_scaling` (transformers 4) and `rope_parameters` (5).
The angles are computed in `worker/layers/rope.py`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ....kernels.elementary import power
from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....records import dataclass
from ..origin import Origin

# The required parameters of each variant.
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": (),
    "proportional": (),
}
# Its optional parameters.
_FURTHER = {
    "yarn": ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
    "longrope": ("factor", "attention_factor"),
    "proportional": ("factor", "partial_rotary_factor"),
}
# Parameters with one number per angle.
_LISTS = {"longrope": ("short_factor", "long_factor")}


QUERY_SCALE = "llama_4_scaling_beta"  # in families that scale queries by their position
# Parameters of other families' variants, for which 1 changes nothing. Keys that no class reads, such as `attn_factor`,
# are ignored, as in transformers.
_OF_OTHERS = ("alpha", QUERY_SCALE, "xdrope_section")


# Gives the axis of each angle from `mrope_section` and the number of angles.
Axes = Callable[[list[int], int], tuple[int, ...]]


def in_blocks(section: list[int], num_angles: int) -> tuple[int, ...]:
    """Qwen2-VL: all angles of time, then height, then width."""
    axes = tuple(axis for axis, count in enumerate(section) for _ in range(count))
    if len(axes) != num_angles:
        raise ValueError(f"mrope_section is {shown(section)}, and should add up to {num_angles}, half of what rotates")
    return axes


def in_turns(section: list[int], num_angles: int) -> tuple[int, ...]:
    """Qwen3-VL: time, height, width, time, …, until height and width are used up; the rest are time."""
    return tuple(number % 3 if number // 3 < section[number % 3] else 0 for number in range(num_angles))


def in_pairs(section: list[int], num_angles: int) -> tuple[int, ...]:
    """ERNIE: height, width, height, …, until these are used up, then time; the section has the same order."""
    height, width, time = section
    if height != width or height + width + time != num_angles:
        raise ValueError(
            f"mrope_section is {shown(section)}, and should have as much height as width, and add up to {num_angles}"
        )
    return (1, 2) * height + (0,) * time


class RopeRules(Protocol):
    """A family's rules for rotary positions, part of its row in the table of families."""

    @property
    def rope_theta(self) -> float: ...

    @property
    def rope_kinds(self) -> dict[str, str] | None: ...

    @property
    def rotates_part(self) -> bool: ...

    @property
    def rotated(self) -> str | None: ...

    @property
    def scales_queries(self) -> bool: ...

    @property
    def stretches_base(self) -> bool: ...

    @property
    def axes(self) -> tuple[Axes, list[int]] | None: ...


class _Bound(NamedTuple):
    holds: Callable[[float], bool]
    sentence: str


_POSITIVE = _Bound(lambda value: value > 0, "a number above 0")
# transformers treats an mscale of 0 as missing, and so do the authors of such configs.
_POSITIVE_OR_NONE = _Bound(lambda value: value >= 0, "a number, 0 or more")
_SHARE = _Bound(lambda value: 0 < value <= 1, "a number above 0 and up to 1")
_STRETCH = _Bound(lambda value: value >= 1, "a number, 1 or more")
_BASE = _Bound(lambda value: value > 1, "a number above 1")
_CONTEXT = _Bound(lambda value: value >= 1 and value == int(value), "a positive whole number")
_BOUNDS = {
    **dict.fromkeys(("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"), _POSITIVE),
    "alpha": _STRETCH,
    "partial_rotary_factor": _SHARE,
    **dict.fromkeys(("short_factor", "long_factor"), _POSITIVE),
    **dict.fromkeys(("mscale", "mscale_all_dim", QUERY_SCALE), _POSITIVE_OR_NONE),
    **dict(factor=_STRETCH, rope_theta=_BASE, original_max_position_embeddings=_CONTEXT),
}
# Angles are computed in float32, which can't hold larger numbers.
_LARGEST = 1e38
# Variants that any family may use; the rows of families name the others.
_USUAL = {kind: kind for kind in _NEEDED if kind != "proportional"}
WITH_SECTIONS = _USUAL | {"mrope": "default"}  # named so in configs of Qwen2-VL


@dataclass(frozen=True)
class RopeConfig:
    """One variant of rotary positions."""

    kind: str  # a key of _NEEDED
    theta: float
    head_dim: int  # elements of a head, of which this many are rotated:
    rotary_dim: int
    factor: float
    trained_context: int  # max_position_embeddings, before any stretching
    original_context: int  # the context that llama3, yarn and longrope stretch
    figures: dict[str, Any]  # the variant's parameters; those used in formulas are floats or lists of floats
    # Queries are multiplied by 1 + this × ln(1 + how often the original context fits in before their position).
    query_scale: float = 0.0
    # By angle, a token's time (0), height (1) or width (2), in models whose tokens have all three.
    axes: tuple[int, ...] = ()

    @property
    def stretches(self) -> tuple[int, ...]:
        """The lengths that requests are rotated for: a request uses the shortest one that it fits into.

        `dynamic` depends on a request's length. Keys rotated for one length can't be used for another, so lengths
        double, and a growing request is recomputed only when its length has doubled. `longrope` has one set of angles
        for requests within the original context and another for those beyond it.
        """
        if self.kind == "longrope":
            return tuple(sorted({min(self.original_context, self.max_position), self.max_position}))
        lengths = [self.trained_context if self.kind == "dynamic" else self.max_position]
        while lengths[-1] < self.max_position:
            lengths.append(min(2 * lengths[-1], self.max_position))
        return tuple(lengths)

    @property
    def max_position(self) -> int:
        """The context after stretching."""
        if self.kind in ("linear", "dynamic"):
            return int(self.trained_context * self.factor)
        if self.kind == "yarn":
            return int(self.original_context * self.factor)
        return self.trained_context


def read_rope(config: dict[str, Any], head_dim: int, context: int, family: RopeRules, origin: Origin) -> RopeConfig:
    """Read the variant that `config` asks for; `head_dim` elements of a head may be rotated."""
    older, newer = config.get("rope_scaling"), config.get("rope_parameters")
    figures = older or newer or {}
    if not isinstance(figures, dict):
        raise ConfigError(f"{origin}: the figures of rotary positions must be an object, and are {shown(figures)}.")
    if any(isinstance(figure, dict) for figure in figures.values()):
        raise ConfigError(f"{origin}: rotary positions that differ by layer ({', '.join(figures)}) are not supported.")
    kind = figures.get("rope_type") or figures.get("type") or "default"
    known = family.rope_kinds or _USUAL
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(f"{origin}: rope type {shown(kind)} is not supported; supported are {', '.join(known)}.")
    kind = known[kind]
    alpha = figures.get("alpha") if family.stretches_base and kind == "dynamic" else None
    if alpha:
        kind, figures = "default", {name: value for name, value in figures.items() if name != "alpha"}
    own = _own_figures(kind, figures, family, origin)
    part: Any = config.get(family.rotated) if family.rotated else None
    share = part / head_dim if is_positive(part) else part
    # Only the classes of these families read it for rope type "default".
    nested = figures.get("partial_rotary_factor") if family.rotates_part or kind != "default" else None
    partial = _first_given(nested, config.get("partial_rotary_factor"), share, 1.0)
    if kind == "proportional":  # angles beyond that part are 0, and the whole head counts as rotated
        partial = 1.0
    is_known = partial == 1.0 or (family.rotates_part and is_positive(partial) and partial < 1)
    rotary_dim = int(head_dim * partial) if is_known else 0
    if rotary_dim < 2 or rotary_dim % 2 or ((kind == "dynamic" or alpha) and rotary_dim == 2):
        rotating = f"{partial:.0%}" if is_positive(partial) else shown(partial)
        raise ConfigError(f"{origin}: heads of {head_dim} of which {rotating} rotate are not supported.")
    own |= {name: _listed(name, figures.get(name), rotary_dim // 2, origin) for name in _LISTS.get(kind, ())}
    name = "original_max_position_embeddings"
    original = _first_given(config.get(name), figures.get(name), context)
    if kind == "longrope" and original == 1:
        raise ConfigError(f"{origin}: {name} must be more than 1 for rope type 'longrope'.")
    theta = _first_given(figures.get("rope_theta"), config.get("rope_theta"), family.rope_theta)
    theta = _bounded("rope_theta", theta, origin)
    if alpha:
        stretched = theta * power(_bounded("alpha", alpha, origin), rotary_dim / (rotary_dim - 2))
        theta = _bounded("rope_theta", stretched, origin)
    return RopeConfig(
        kind=kind,
        theta=theta,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        factor=own.get("factor", 1.0),
        trained_context=context,
        original_context=int(_bounded(name, original, origin)),
        figures=figures | own,
        query_scale=own.get(QUERY_SCALE, 0.0),
        axes=_axes(figures, family, rotary_dim // 2),
    )


def _axes(figures: dict[str, Any], family: RopeRules, num_angles: int) -> tuple[int, ...]:
    if family.axes is None:
        return ()
    rule, usual = family.axes
    section = figures.get("mrope_section") or usual
    if not isinstance(section, list) or [type(each) for each in section] != [int] * 3 or min(section) < 0:
        raise ValueError(f"mrope_section must be three whole numbers, and is {shown(section)}")
    return rule(section, num_angles)


def _own_figures(kind: str, figures: dict[str, Any], family: RopeRules, origin: Origin) -> dict[str, Any]:
    """The parameters that the variant uses. One of another family's is refused; any other stays unread."""
    further = (QUERY_SCALE,) if family.scales_queries else ()
    for name, value in figures.items():
        if name in _OF_OTHERS and name not in further and value not in (None, False, 0, 1):
            raise ConfigError(
                f"{origin}: {name}={shown(value)} among the figures of rotary positions changes the angles in a way "
                "that is not supported. If the weights were trained without it, remove it from config.json."
            )
    if missing := [name for name in _NEEDED[kind] if figures.get(name) is None]:
        raise ConfigError(f"{origin}: rope type {kind!r} needs {', '.join(missing)}.")
    names = (*_NEEDED[kind], *_FURTHER.get(kind, ()), *further)
    found = {name: _bounded(name, figures[name], origin) for name in names if figures.get(name) is not None}
    if kind == "llama3" and found["high_freq_factor"] <= found["low_freq_factor"]:
        high = shown(figures["high_freq_factor"])
        raise ConfigError(f"{origin}: high_freq_factor must be above low_freq_factor, and is {high}.")
    # In some models both are equal.
    if kind == "yarn" and found.get("beta_fast", 32) < found.get("beta_slow", 1):
        raise ConfigError(f"{origin}: beta_fast must not be below beta_slow, and is {figures.get('beta_fast', 32)}.")
    if kind == "yarn" and not isinstance(figures.get("truncate", True), (bool, type(None))):
        raise ConfigError(f"{origin}: truncate must be true or false, and is {shown(figures['truncate'])}.")
    return found


def _listed(name: str, value: Any, count: int, origin: Origin) -> list[float]:
    if not isinstance(value, list) or len(value) != count:
        given = f"a list of {len(value)}" if isinstance(value, list) else shown(value)
        raise ConfigError(f"{origin}: {name} must be a list of {count} numbers, one for each angle, and is {given}.")
    return [_bounded(name, each, origin) for each in value]


def _bounded(name: str, value: Any, origin: Origin) -> float:
    bound = _BOUNDS[name]
    if type(value) not in (int, float) or not abs(value) < _LARGEST or not bound.holds(value):
        raise ConfigError(f"{origin}: {name} must be {bound.sentence}, and is {shown(value)}.")
    return float(value)


def _first_given(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf
