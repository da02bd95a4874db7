"""Rotary positions: the frequencies of each variant, and the table of their cosines and sines.

The table grows in chunks of CHUNK positions, each computed in one shape, so that a position's bits depend on the
position alone. Formulas as in transformers; `dynamic` is frozen at the longest context that the tree serves, because
theirs depends on the batch. Knows nothing of attention.
"""

import math

import torch
from torch import Tensor

from ..models.rope_config import RopeConfig

CHUNK = 4096


class Rope:
    """cos and sin for any position, ready for `rotate_halves` or `rotate_pairs`."""

    def __init__(self, config: RopeConfig, max_model_len: int, rotates_pairs: bool, device: torch.device) -> None:
        self.frequencies, self.magnitude = inverse_frequencies(config, max_model_len)
        self.rotates_pairs = rotates_pairs
        self.device = device
        self.cos = self.sin = torch.empty(0, config.head_dim, device=device)

    def at(self, positions: Tensor, longest: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[T, 1, head_dim] each; no position reaches `longest`. The sine carries the rotation's sign."""
        self.grow_to(longest)
        return self.cos[positions].unsqueeze_(1).to(dtype), self.sin[positions].unsqueeze_(1).to(dtype)

    def grow_to(self, longest: int) -> None:
        while len(self.cos) < longest:
            self._grow()

    def _grow(self) -> None:
        positions = torch.arange(len(self.cos), len(self.cos) + CHUNK, dtype=torch.float32)
        angles = positions[:, None] * self.frequencies
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude
        if self.rotates_pairs:
            cos, sin = cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        else:
            cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        self.cos = torch.cat((self.cos, cos.to(self.device)))
        self.sin = torch.cat((self.sin, sin.to(self.device)))


def inverse_frequencies(config: RopeConfig, max_model_len: int) -> tuple[Tensor, float]:
    """[head_dim / 2] angles a position, and the factor of cos and sin."""
    plain = _plain(config.theta, config.head_dim)
    if config.kind == "linear":
        return plain / config.factor, 1.0
    if config.kind == "dynamic":
        return _dynamic(config, max_model_len), 1.0
    if config.kind == "llama3":
        return _llama3(config, plain), 1.0
    if config.kind == "yarn":
        return _yarn(config, plain), _yarn_magnitude(config)
    return plain, 1.0


def _plain(theta: float, head_dim: int) -> Tensor:
    return 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))


def _dynamic(config: RopeConfig, max_model_len: int) -> Tensor:
    length = max(max_model_len, config.trained_context)
    stretch = config.factor * length / config.trained_context - (config.factor - 1)
    return _plain(config.theta * stretch ** (config.head_dim / (config.head_dim - 2)), config.head_dim)


def _llama3(config: RopeConfig, plain: Tensor) -> Tensor:
    """Long waves are slowed by the factor, short ones kept, and those between blended."""
    low, high = config.figures["low_freq_factor"], config.figures["high_freq_factor"]
    wavelength = 2 * math.pi / plain
    slowed = torch.where(wavelength > config.original_context / low, plain / config.factor, plain)
    share = (config.original_context / wavelength - low) / (high - low)
    blended = (1 - share) * slowed / config.factor + share * slowed
    is_between = (wavelength >= config.original_context / high) & (wavelength <= config.original_context / low)
    return torch.where(is_between, blended, slowed)


def _yarn(config: RopeConfig, plain: Tensor) -> Tensor:
    """Dimensions that turn often within the original context keep their frequency, the rest are interpolated."""
    half = config.head_dim // 2
    fast, slow = config.figures.get("beta_fast") or 32, config.figures.get("beta_slow") or 1
    low, high = (_yarn_dimension(config, rotations) for rotations in (fast, slow))
    if config.figures.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    ramp = (torch.arange(half, dtype=torch.float32) - low) / (high - low if high != low else 0.001)
    kept = 1 - ramp.clamp(0, 1)
    positions = config.theta ** (torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim)
    return 1.0 / (config.factor * positions) * (1 - kept) + plain * kept


def _yarn_dimension(config: RopeConfig, rotations: float) -> float:
    """The dimension that turns so many times within the original context."""
    turns = config.original_context / (rotations * 2 * math.pi)
    return config.head_dim * math.log(turns) / (2 * math.log(config.theta))


def _yarn_magnitude(config: RopeConfig) -> float:
    figures = config.figures
    if figures.get("attention_factor") is not None:
        return float(figures["attention_factor"])

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0

    if figures.get("mscale") and figures.get("mscale_all_dim"):
        return scale(figures["mscale"]) / scale(figures["mscale_all_dim"])
    return scale(1.0)
