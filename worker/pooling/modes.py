"""How the rows of a prompt become one, added up row by row, so that steps may cut the prompt anywhere (`pooling.py`).

Each has the same bits however many rows come together: a sum takes one row after another.
"""

import math
from collections.abc import Callable
from typing import Protocol

import numpy

from ...kernels.arrays import Array


class Mode(Protocol):
    def add(self, rows: Array) -> None:
        """Take in the next rows of the prompt, float32 [rows, width]."""

    def pooled(self) -> Array:
        """The row for all that were taken in, float32 [width]."""


class First:
    def __init__(self) -> None:
        self._row: Array | None = None

    def add(self, rows: Array) -> None:
        if self._row is None:
            self._row = rows[0]

    def pooled(self) -> Array:
        return self._row  # type: ignore[return-value]  # a prompt has a row


class Last:
    def __init__(self) -> None:
        self._row: Array | None = None

    def add(self, rows: Array) -> None:
        self._row = rows[-1]

    def pooled(self) -> Array:
        return self._row  # type: ignore[return-value]


class Largest:
    def __init__(self) -> None:
        self._row: Array | None = None

    def add(self, rows: Array) -> None:
        largest = rows.max(0)
        self._row = largest if self._row is None else numpy.maximum(self._row, largest)

    def pooled(self) -> Array:
        return self._row  # type: ignore[return-value]


class Sum:
    """A sum of weighted rows in float64, divided by a function of their weights."""

    def __init__(self, weight: Callable[[int], float], divisor: Callable[[float], float]) -> None:
        """`weight` of the n-th row, counted from 1; `divisor` of the sum of weights."""
        self._weight, self._divisor = weight, divisor
        self._sum: Array | None = None
        self._num_rows, self._weights = 0, 0.0

    def add(self, rows: Array) -> None:
        if self._sum is None:
            self._sum = numpy.zeros(rows.shape[1], numpy.float64)
        for row in rows:
            self._num_rows += 1
            weight = self._weight(self._num_rows)
            self._weights += weight
            self._sum += row if weight == 1 else row.astype(numpy.float64) * weight

    def pooled(self) -> Array:
        mean: Array = numpy.asarray(self._sum) / self._divisor(self._weights)
        return mean.astype(numpy.float32)


MODES: dict[str, Callable[[], Mode]] = {
    "cls": First,
    "lasttoken": Last,
    "max": Largest,
    "mean": lambda: Sum(lambda number: 1.0, lambda total: total),
    "mean_sqrt_len": lambda: Sum(lambda number: 1.0, math.sqrt),
    "weightedmean": lambda: Sum(float, lambda total: total),
}
