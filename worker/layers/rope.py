"""Rotary position embedding: the frequencies of each variant, and the tables of their cosines and sines.

A position's bits depend only on the position and the stretch, however a table has grown. `dynamic` and `longrope` have
a stretch of rows for each of several request lengths, one after another; in the other variants a position is its own
row number. All tables of a model have the same rows. The formulas are those of transformers, except that its `dynamic`
changes with every token of the longest request.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

import numpy

from ...kernels.arrays import FLOAT32, Array
from ...kernels.elementary import cosines_and_sines, logarithm, power
from ..description.layer_ropes import LayerRopes
from ..description.parts.rope import RopeConfig

CHUNK = 1024  # rows by which tables grow
_ENDLESS = 1 << 62  # beyond any table

T = TypeVar("T")


class Ropes:
    """The ropes of a model's layers."""

    def __init__(self, config: LayerRopes, rotates_pairs: bool) -> None:
        self.tables = [Rope(rope, rotates_pairs, config.stretches) for rope in config.ropes]
        self._by_layer = config.by_layer

    def by_layer(self, of_tables: Sequence[T]) -> list[T | None]:
        """Distribute values of the tables to the layers that use them; None for a layer that doesn't rotate."""
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
    """cos and sin for any position; the sines have the rotation's sign."""

    def __init__(self, config: RopeConfig, rotates_pairs: bool, stretches: tuple[int, ...] = ()) -> None:
        """`stretches`: the model's, if another of its ropes has some."""
        self.stretches = stretches or config.stretches
        # [stretches, rotary_dim / 2]
        self.frequencies = numpy.stack([inverse_frequencies(config, length) for length in self.stretches])
        self.magnitude = _MAGNITUDES[config.kind](config) if config.kind in _MAGNITUDES else 1.0
        self.starts = numpy.cumsum((0, *self.stretches[:-1]))  # the row of each stretch's position 0
        self.rotates_pairs = rotates_pairs
        self.cos = self.sin = numpy.empty((0, config.head_dim), FLOAT32)  # [rows, head_dim]
        # [rows]: factors of queries.
        self.query_scales = numpy.empty(0, FLOAT32) if config.query_scale else None
        self._axes = _axes_of_numbers(config, rotates_pairs)  # [head_dim], or nothing
        self._query_scale, self._original_context = config.query_scale, config.original_context

    def by_axis(self, rows: Array) -> tuple[Array, Array]:
        """[T, head_dim] cosines and sines for rows [3, T]: each angle uses the row of its axis."""
        axes = self._axes if len(self._axes) else numpy.zeros(self.cos.shape[1], numpy.int64)
        of_numbers = numpy.ascontiguousarray(rows[axes].T)  # [T, head_dim]; what is gathered is laid out alike
        columns = numpy.arange(len(axes))
        return self.cos[of_numbers, columns], self.sin[of_numbers, columns]

    def end_of(self, longest: int) -> int:
        """One past the last row that requests of up to so many tokens may use."""
        return int(self.starts[bisect_left(self.stretches[:-1], longest)]) + longest

    def grow_to(self, end: int) -> None:
        firsts = range(len(self.cos), end, CHUNK)
        if not firsts:
            return
        cos, sin = zip(*(self._cos_sin(*self._positions(first)) for first in firsts), strict=True)
        self.cos, self.sin = numpy.concatenate((self.cos, *cos)), numpy.concatenate((self.sin, *sin))
        if self.query_scales is not None:
            scales = [self._scales(self._positions(first)[0]) for first in firsts]
            self.query_scales = numpy.concatenate((self.query_scales, *scales))

    def _positions(self, first: int) -> tuple[Array, Array]:
        """[CHUNK] each: the positions of the rows from `first` on, and their stretches."""
        rows = numpy.arange(first, first + CHUNK)
        stretch = numpy.searchsorted(self.starts, rows, side="right") - 1
        return (rows - self.starts[stretch]).astype(FLOAT32), stretch

    def _cos_sin(self, positions: Array, stretch: Array) -> tuple[Array, Array]:
        """[CHUNK, head_dim] each, as each form of rotation pairs the elements; the remaining ones aren't rotated."""
        angles = (positions[:, None] * self.frequencies[stretch]).astype(numpy.float64)  # [CHUNK, rotary_dim / 2]
        of_cos, of_sin = (found.astype(FLOAT32) * self.magnitude for found in cosines_and_sines(angles))
        half = angles.shape[1]
        first, second = (
            (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
            if self.rotates_pairs
            else (slice(0, half), slice(half, 2 * half))
        )
        cos = numpy.ones((CHUNK, self.cos.shape[1]), FLOAT32)
        sin = numpy.zeros_like(cos)
        cos[:, first] = cos[:, second] = of_cos
        sin[:, first], sin[:, second] = -of_sin, of_sin
        return cos, sin

    def _scales(self, positions: Array) -> Array:
        """[CHUNK]: log(1 + the number of whole original contexts before a position), scaled, plus 1."""
        contexts = numpy.floor(positions / self._original_context)
        logs = numpy.array([logarithm(1 + each) for each in contexts.tolist()], FLOAT32)
        return 1 + self._query_scale * logs


def _axes_of_numbers(config: RopeConfig, rotates_pairs: bool) -> Array:
    """[head_dim] axis of each column of the tables; unrotated columns may have any."""
    axes = numpy.array(config.axes, numpy.int64)
    if not len(axes):
        return axes
    axes = numpy.repeat(axes, 2) if rotates_pairs else numpy.tile(axes, 2)
    return numpy.pad(axes, (0, config.head_dim - len(axes)))


def inverse_frequencies(config: RopeConfig, length: int) -> Array:
    """[rotary_dim / 2] angles per position, for positions stretched for requests of up to so many tokens."""
    plain = plain_frequencies(config.theta, config.rotary_dim)
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


def plain_frequencies(theta: float, head_dim: int) -> Array:
    """[rotary_dim / 2], like all forms below: θ^(-2i / head_dim)."""
    return 1.0 / _powers(theta, head_dim)


def _powers(theta: float, head_dim: int) -> Array:
    """[rotary_dim / 2]: θ^(2i / head_dim) of the base and the exponents in float32, rounded once."""
    base, exponents = float(FLOAT32.type(theta)), numpy.arange(0, head_dim, 2, dtype=FLOAT32) / head_dim
    return numpy.array([power(base, exponent) for exponent in exponents.tolist()], FLOAT32)


def _proportional(config: RopeConfig, plain: Array) -> Array:
    """Only the first angles rotate, with the frequencies of a fully rotated head."""
    turning = int(config.figures.get("partial_rotary_factor", 1.0) * config.head_dim // 2)
    return numpy.where(numpy.arange(len(plain)) < turning, plain / config.factor, FLOAT32.type(0))


def _dynamic(config: RopeConfig, length: int) -> Array:
    stretch = config.factor * length / config.trained_context - (config.factor - 1)
    theta = config.theta * power(stretch, config.rotary_dim / (config.rotary_dim - 2))
    return plain_frequencies(theta, config.rotary_dim)


def _llama3(config: RopeConfig, plain: Array) -> Array:
    """Long waves are slowed by the factor, short ones kept, and those between blended."""
    low, high = config.figures["low_freq_factor"], config.figures["high_freq_factor"]
    wavelength = 2 * math.pi * (1 / plain)  # [rotary_dim / 2], in positions
    slowed = numpy.where(wavelength > config.original_context / low, plain / config.factor, plain)
    share = (config.original_context * (1 / wavelength) - low) / (high - low)
    blended = (1 - share) * slowed / config.factor + share * slowed
    is_between = (wavelength >= config.original_context / high) & (wavelength <= config.original_context / low)
    return numpy.where(is_between, blended, slowed)


def _yarn(config: RopeConfig, plain: Array) -> Array:
    """Dimensions that turn often within the original context keep their frequency, the rest are interpolated."""
    half = config.rotary_dim // 2
    fast, slow = config.figures.get("beta_fast") or 32, config.figures.get("beta_slow") or 1
    low, high = (_yarn_dimension(config, rotations) for rotations in (fast, slow))
    if config.figures.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    ramp = (numpy.arange(half, dtype=FLOAT32) - low) / (high - low if high != low else 0.001)  # [rotary_dim / 2]
    kept = 1 - ramp.clip(0, 1)  # the share of the frequency that is not interpolated
    slowed = 1.0 / (config.factor * _powers(config.theta, config.rotary_dim))
    found: Array = slowed * (1 - kept) + plain * kept
    return found


def _longrope(config: RopeConfig, length: int) -> Array:
    factors = config.figures["long_factor" if length > config.original_context else "short_factor"]
    return 1.0 / (numpy.array(factors, FLOAT32) * _powers(config.theta, config.rotary_dim))


def _longrope_magnitude(config: RopeConfig) -> float:
    if (given := config.figures.get("attention_factor")) is not None:
        return float(given)
    factor = config.figures.get("factor") or config.trained_context / config.original_context
    return math.sqrt(1 + logarithm(factor) / logarithm(config.original_context)) if factor > 1 else 1.0


def _yarn_dimension(config: RopeConfig, rotations: float) -> float:
    """The dimension that turns so many times within the original context."""
    turns = config.original_context / (rotations * 2 * math.pi)
    return config.rotary_dim * logarithm(turns) / (2 * logarithm(config.theta))


def _yarn_magnitude(config: RopeConfig) -> float:
    figures = config.figures
    if figures.get("attention_factor") is not None:
        return float(figures["attention_factor"])

    def scale(weight: float) -> float:
        return 0.1 * weight * logarithm(config.factor) + 1.0 if config.factor > 1 else 1.0

    if figures.get("mscale") and figures.get("mscale_all_dim"):
        return scale(figures["mscale"]) / scale(figures["mscale_all_dim"])
    return scale(1.0)


# Factors of cosines and sines.
_MAGNITUDES = {"yarn": _yarn_magnitude, "longrope": _longrope_magnitude}
