"""Rotary position embedding: the frequencies of each variant, and the tables of their cosines and sines.

A table grows in chunks of CHUNK rows, each computed in one shape, so that a position's bits depend only on the position
and the stretch. `dynamic` and `longrope` have a stretch of rows for each of several request lengths, one after another;
in the other variants a position is its own row number. All tables of a model have the same rows. The formulas are those
of transformers, except that its `dynamic` changes with every token of the longest request.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import TokenRotation
from ..description.layer_ropes import LayerRopes
from ..description.parts.rope import RopeConfig

CHUNK = 4096
_ENDLESS = 1 << 62  # beyond any table

T = TypeVar("T")


class Ropes:
    """The ropes of a model's layers."""

    def __init__(self, config: LayerRopes, rotates_pairs: bool, device: torch.device) -> None:
        self.tables = [Rope(rope, rotates_pairs, device, config.stretches) for rope in config.ropes]
        self._by_layer = config.by_layer

    def at(self, rows: Tensor, end: int, dtype: torch.dtype) -> list[TokenRotation | None]:
        """Results of `Rope.at` by layer; None for a layer that doesn't rotate."""
        return self.by_layer([table.at(rows, end, dtype) for table in self.tables])

    def by_layer(self, of_tables: Sequence[T]) -> list[T | None]:
        """Distribute values of the tables to the layers that use them."""
        return [None if number is None else of_tables[number] for number in self._by_layer]

    def end_of(self, longest: int) -> int:
        return max((table.end_of(longest) for table in self.tables), default=0)

    def grow_to(self, end: int) -> None:
        for table in self.tables:
            table.grow_to(end)

    @property
    def num_rows(self) -> int:
        """Rows of each table."""
        return min((len(table.cos) for table in self.tables), default=_ENDLESS)


class Rope:
    """cos and sin for any position, ready for `rotate_halves` or `rotate_pairs`."""

    def __init__(
        self, config: RopeConfig, rotates_pairs: bool, device: torch.device, stretches: tuple[int, ...] = ()
    ) -> None:
        """`stretches`: the model's, if another of its ropes has some."""
        self.stretches = stretches or config.stretches
        # [stretches, rotary_dim / 2]
        self.frequencies = torch.stack([inverse_frequencies(config, length) for length in self.stretches])
        self.magnitude = _MAGNITUDES[config.kind](config) if config.kind in _MAGNITUDES else 1.0
        self.starts = torch.tensor([0, *self.stretches[:-1]]).cumsum(0)  # the row of each stretch's position 0
        self.rotates_pairs = rotates_pairs
        self.device = device
        self.cos = self.sin = torch.empty(0, config.head_dim, device=device)  # [positions, head_dim]
        # [positions]: factors of queries.
        self.query_scales = torch.empty(0, device=device) if config.query_scale else None
        self._axes = _axes_of_numbers(config, rotates_pairs).to(device)  # [head_dim], or nothing
        self._query_scale, self._original_context = config.query_scale, config.original_context

    def at(self, rows: Tensor, end: int, dtype: torch.dtype) -> TokenRotation:
        """`rows` are [T], or [3, T] by time, height and width; all are below `end`."""
        self.grow_to(end)
        if rows.dim() == 2:
            cos, sin = self.by_axis(rows)
            return TokenRotation(cos.unsqueeze_(1).to(dtype), sin.unsqueeze_(1).to(dtype))
        scales = None if self.query_scales is None else self.query_scales[rows].view(-1, 1, 1).to(dtype)
        return TokenRotation(self.cos[rows].unsqueeze_(1).to(dtype), self.sin[rows].unsqueeze_(1).to(dtype), scales)

    def by_axis(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """[T, head_dim] cosines and sines for rows [3, T]: each angle uses the row of its axis."""
        if not len(self._axes):
            rows, axes = rows[:1], self._axes.new_zeros(self.cos.shape[1])
        else:
            axes = self._axes
        # [T, head_dim]; the gathered result has the same memory layout.
        of_numbers, columns = rows[axes].T.contiguous(), torch.arange(self.cos.shape[1], device=rows.device)
        return self.cos[of_numbers, columns], self.sin[of_numbers, columns]

    def end_of(self, longest: int) -> int:
        """One past the last row that requests of up to so many tokens may use."""
        return int(self.starts[bisect_left(self.stretches[:-1], longest)]) + longest

    def grow_to(self, end: int) -> None:
        while len(self.cos) < end:
            self._grow()

    def _grow(self) -> None:
        rows = torch.arange(len(self.cos), len(self.cos) + CHUNK)
        stretch = torch.searchsorted(self.starts, rows, right=True) - 1  # [CHUNK]
        positions = (rows - self.starts[stretch]).float()  # [CHUNK]
        angles = positions[:, None] * self.frequencies[stretch]  # [CHUNK, rotary_dim / 2]
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude  # [CHUNK, rotary_dim / 2]
        # [CHUNK, rotary_dim], as each form of rotation pairs the elements.
        if self.rotates_pairs:
            cos, sin = cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        else:
            cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        # [CHUNK, head_dim]: the remaining elements aren't rotated.
        kept = (0, self.cos.shape[1] - cos.shape[1])
        cos, sin = F.pad(cos, kept, value=1.0), F.pad(sin, kept)
        self.cos = torch.cat((self.cos, cos.to(self.device)))
        self.sin = torch.cat((self.sin, sin.to(self.device)))
        if self.query_scales is not None:
            scales = 1 + self._query_scale * (positions / self._original_context).floor().log1p()
            self.query_scales = torch.cat((self.query_scales, scales.to(self.device)))


def _axes_of_numbers(config: RopeConfig, rotates_pairs: bool) -> Tensor:
    """[head_dim] axis of each column of the tables; unrotated columns may have any."""
    axes = torch.tensor(config.axes, dtype=torch.int64)
    if not len(axes):
        return axes
    axes = axes.repeat_interleave(2) if rotates_pairs else axes.repeat(2)
    return F.pad(axes, (0, config.head_dim - len(axes)))


def inverse_frequencies(config: RopeConfig, length: int) -> Tensor:
    """[rotary_dim / 2] angles per position, for positions stretched for requests of up to so many tokens."""
    plain = _plain(config.theta, config.rotary_dim)
    if config.kind == "linear":
        return plain / config.factor
    if config.kind == "dynamic":
        return _dynamic(config, length)
    if config.kind == "llama3":
        return _llama3(config, plain)
    if config.kind == "yarn":
        return _yarn(config, plain)
    if config.kind == "longrope":
        return _longrope(config, length)
    if config.kind == "proportional":
        return _proportional(config, plain)
    return plain


def _plain(theta: float, head_dim: int) -> Tensor:
    """[rotary_dim / 2], like all forms below: θ^(-2i / head_dim)."""
    return 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))


def _proportional(config: RopeConfig, plain: Tensor) -> Tensor:
    """Only the first angles rotate, with the frequencies of a fully rotated head."""
    turning = int(config.figures.get("partial_rotary_factor", 1.0) * config.head_dim // 2)
    return (plain / config.factor).index_fill(0, torch.arange(turning, len(plain)), 0.0)


def _dynamic(config: RopeConfig, length: int) -> Tensor:
    stretch = config.factor * length / config.trained_context - (config.factor - 1)
    return _plain(config.theta * stretch ** (config.rotary_dim / (config.rotary_dim - 2)), config.rotary_dim)


def _llama3(config: RopeConfig, plain: Tensor) -> Tensor:
    """Long waves are slowed by the factor, short ones kept, and those between blended."""
    low, high = config.figures["low_freq_factor"], config.figures["high_freq_factor"]
    wavelength = 2 * math.pi / plain  # [rotary_dim / 2], in positions
    slowed = torch.where(wavelength > config.original_context / low, plain / config.factor, plain)
    share = (config.original_context / wavelength - low) / (high - low)
    blended = (1 - share) * slowed / config.factor + share * slowed
    is_between = (wavelength >= config.original_context / high) & (wavelength <= config.original_context / low)
    return torch.where(is_between, blended, slowed)


def _yarn(config: RopeConfig, plain: Tensor) -> Tensor:
    """Dimensions that turn often within the original context keep their frequency, the rest are interpolated."""
    half = config.rotary_dim // 2
    fast, slow = config.figures.get("beta_fast") or 32, config.figures.get("beta_slow") or 1
    low, high = (_yarn_dimension(config, rotations) for rotations in (fast, slow))
    if config.figures.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    ramp = (torch.arange(half, dtype=torch.float32) - low) / (high - low if high != low else 0.001)  # [rotary_dim / 2]
    kept = 1 - ramp.clamp(0, 1)  # the share of the frequency that is not interpolated
    positions = config.theta ** (torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim)
    return 1.0 / (config.factor * positions) * (1 - kept) + plain * kept


def _longrope(config: RopeConfig, length: int) -> Tensor:
    factors = config.figures["long_factor" if length > config.original_context else "short_factor"]
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
    return 1.0 / (torch.tensor(factors, dtype=torch.float32) * config.theta**exponents)


def _longrope_magnitude(config: RopeConfig) -> float:
    if (given := config.figures.get("attention_factor")) is not None:
        return float(given)
    factor = config.figures.get("factor") or config.trained_context / config.original_context
    return math.sqrt(1 + math.log(factor) / math.log(config.original_context)) if factor > 1 else 1.0


def _yarn_dimension(config: RopeConfig, rotations: float) -> float:
    """The dimension that turns so many times within the original context."""
    turns = config.original_context / (rotations * 2 * math.pi)
    return config.rotary_dim * math.log(turns) / (2 * math.log(config.theta))


def _yarn_magnitude(config: RopeConfig) -> float:
    figures = config.figures
    if figures.get("attention_factor") is not None:
        return float(figures["attention_factor"])

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0

    if figures.get("mscale") and figures.get("mscale_all_dim"):
        return scale(figures["mscale"]) / scale(figures["mscale_all_dim"])
    return scale(1.0)


# Factors of cosines and sines.
_MAGNITUDES = {"yarn": _yarn_magnitude, "longrope": _longrope_magnitude}
