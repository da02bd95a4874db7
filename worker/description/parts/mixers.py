"""The replacements for attention in a layer: a gated delta net or a short convolution.

Both keep a state of fixed size instead of keys and values. A family's row names one of the rules at the end, which
read each layer's kind from a config. Reads no weights and imports no torch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....protocol.fields.rules import shown
from ....records import dataclass

_MOST_INPUTS = 16  # of a convolution: no kernel takes more, and no model has that many
_FLOAT = 4


@dataclass(frozen=True)
class StateShape:
    """A float32 state's shape over all ranks. Layers of one shape are a group of the memory."""

    conv_width: int  # inputs that a convolution reads, including the newest; the others are kept
    conv_channels: int
    num_heads: int = 0  # of matrices; 0: there are none
    key_dim: int = 0
    value_dim: int = 0

    @property
    def nbytes(self) -> int:
        numbers = (self.conv_width - 1) * self.conv_channels + self.num_heads * self.key_dim * self.value_dim
        return _FLOAT * numbers


@dataclass(frozen=True)
class DeltaNet:
    """A gated delta net. Each key head serves the same number of neighbouring value heads."""

    conv_width: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    is_fused: bool  # two projections hold all parts, key head by key head

    @property
    def keys(self) -> int:
        """Elements of all heads' keys."""
        return self.num_key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.num_value_heads * self.value_dim

    @property
    def width(self) -> int:
        """Elements of a token that are in memory at once."""
        return 2 * (self.keys + self.values)

    @property
    def num_shared(self) -> int:
        """Value heads per key head."""
        return self.num_value_heads // self.num_key_heads

    @property
    def state(self) -> StateShape:
        channels = 2 * self.keys + self.values
        return StateShape(self.conv_width, channels, self.num_value_heads, self.key_dim, self.value_dim)


@dataclass(frozen=True)
class ShortConvolution:
    """A gate, a convolution of a few tokens, and a gate."""

    conv_width: int
    channels: int

    @property
    def width(self) -> int:
        return 2 * self.channels

    @property
    def state(self) -> StateShape:
        return StateShape(self.conv_width, self.channels)


Mixer = DeltaNet | ShortConvolution | None  # None: attention
Count = Callable[[str], int]  # reads a key that is a positive whole number
Mixers = Callable[[dict[str, Any], int, Count], tuple[Mixer, ...]]


def attention_everywhere(config: dict[str, Any], num_layers: int, count: Count) -> tuple[Mixer, ...]:
    return (None,) * num_layers


def fused_delta_nets(config: dict[str, Any], num_layers: int, count: Count) -> tuple[Mixer, ...]:
    """Mixers of Qwen3-Next."""
    return _by_kind(_delta_kinds(config, num_layers, count), {"linear_attention": _delta_net(count, True)})


def delta_nets(config: dict[str, Any], num_layers: int, count: Count) -> tuple[Mixer, ...]:
    """Mixers of Qwen3.5."""
    return _by_kind(_delta_kinds(config, num_layers, count), {"linear_attention": _delta_net(count, False)})


def short_convolutions(config: dict[str, Any], num_layers: int, count: Count) -> tuple[Mixer, ...]:
    """Mixers of LFM2."""
    kinds, attending = config.get("layer_types"), config.get("full_attn_idxs")
    if kinds is None:
        chosen = range(num_layers) if attending is None else attending
        kinds = ["full_attention" if layer in chosen else "conv" for layer in range(num_layers)]
    convolution = ShortConvolution(_conv_width(count, "conv_L_cache"), count("hidden_size"))
    return _by_kind(_checked(kinds, num_layers), {"conv": convolution})


def with_projections_apart(mixers: tuple[Mixer, ...]) -> tuple[Mixer, ...]:
    """The same mixers, for checkpoints that don't fuse the projections of a delta net."""
    return tuple(replace(each, is_fused=False) if isinstance(each, DeltaNet) else each for each in mixers)


def _delta_kinds(config: dict[str, Any], num_layers: int, count: Count) -> list[str]:
    kinds, _ = config.get("layer_types"), config.get("full_attention_interval")  # read in any case
    if kinds is None:
        interval = count("full_attention_interval")
        kinds = ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(num_layers)]
    return _checked(kinds, num_layers)


def _delta_net(count: Count, is_fused: bool) -> DeltaNet:
    net = DeltaNet(
        _conv_width(count, "linear_conv_kernel_dim"),
        count("linear_num_key_heads"),
        count("linear_num_value_heads"),
        count("linear_key_head_dim"),
        count("linear_value_head_dim"),
        is_fused,
    )
    if net.num_value_heads % net.num_key_heads:
        raise ValueError(f"{net.num_value_heads} value heads can't share {net.num_key_heads} key heads evenly")
    return net


def _conv_width(count: Count, key: str) -> int:
    width = count(key)
    if not 1 < width <= _MOST_INPUTS:
        raise ValueError(f"{key} is {width}, and convolutions of 2 to {_MOST_INPUTS} tokens are supported")
    return width


def _checked(kinds: Any, num_layers: int) -> list[str]:
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise ValueError(f"layer_types must name each of {num_layers} layers, and is {shown(kinds)}")
    return kinds


def _by_kind(kinds: list[str], mixers: dict[str, Mixer]) -> tuple[Mixer, ...]:
    known = {"full_attention": None} | mixers
    if unknown := next((kind for kind in kinds if kind not in known), None):
        raise ValueError(f"layer_types has {shown(unknown)}, and only {' and '.join(known)} are supported")
    if "full_attention" not in kinds:
        raise ValueError("none of its layers has attention, and at least one must")
    return tuple(known[kind] for kind in kinds)
