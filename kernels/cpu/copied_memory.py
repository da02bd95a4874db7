"""Memory that stands for that of ranks on other machines: what they have written is copied here before it is read.

It has the areas of `SharedMemory`, one for each rank, all in this process. Kernels write and add up as they do on one
machine, in the same order, so sums have the same bits; a call of Python's between them fetches the other ranks' rows.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_int32, c_void_p, cast
from typing import Protocol

import numpy

from ..arrays import FLOAT32, Array, address
from .program import Program
from .structs import Meeting
from .weights.huge_pages import zeroed


class Exchanger(Protocol):
    """The ranks of several machines, which send one another arrays of any kind and one size."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def gathered(self, x: Array) -> list[Array]:
        """Every rank's array, in the order of the ranks."""

    def gathered_at_first(self, x: Array, widest: int) -> list[Array] | None:
        """At rank 0 every rank's columns, of which none has more than `widest`; None elsewhere."""


class CopiedMemory:
    """`num_areas` areas of `area_bytes` for each rank."""

    def __init__(self, ranks: Exchanger, num_areas: int, area_bytes: int) -> None:
        self._ranks = ranks
        self._areas = [[zeroed(area_bytes) for _ in range(ranks.size)] for _ in range(num_areas)]
        # A meeting with itself alone: everybody's counter is its own.
        self._counter = numpy.zeros(1, numpy.uint32)
        self._arrivals = (c_void_p * ranks.size)(*[address(self._counter)] * ranks.size)
        self.meeting = Meeting(ranks.rank, ranks.size, ctypes.addressof(self._arrivals))

    def area(self, number: int, rank: int | None = None) -> Array:
        """A rank's area as bytes, this rank's own if not said."""
        return self._areas[number][self._ranks.rank if rank is None else rank]

    def parts(self, number: int) -> "ctypes.Array[c_void_p]":
        """The addresses of an area of all ranks."""
        return (c_void_p * self._ranks.size)(*map(address, self._areas[number]))

    def record_sum(self, program: Program, number: int, width: int) -> None:
        """Record that the rows in an area are fetched from all ranks."""
        num_rows = _number_at(program.num_rows)

        def fetch() -> None:
            num_bytes = 4 * num_rows() * width
            areas = [area[:num_bytes] for area in self._areas[number]]
            for rank, rows in enumerate(self._ranks.gathered(areas[self._ranks.rank])):
                if rank != self._ranks.rank:
                    areas[rank][:] = rows

        program.call_function(fetch)

    def record_gather(self, program: Program, first: int, last: int, width: int) -> None:
        """Record that rank 0 gets these columns of its area 0 from this rank, which has written them to its copy."""
        size, num_rows = self._ranks.size, _number_at(program.num_rows)
        spans = [(rank * width // size, (rank + 1) * width // size) for rank in range(size)]
        widest = max(last - first for first, last in spans)

        def fetch() -> None:
            rows = self._areas[0][0][: 4 * num_rows() * width].view(FLOAT32).reshape(-1, width)
            for (start, end), columns in zip(spans, self._ranks.gathered_at_first(rows[:, first:last], widest) or ()):
                if start != first:
                    rows[:, start:end] = columns[:, : end - start]

        program.call_function(fetch)


def _number_at(place: int) -> Callable[[], int]:
    number = cast(place, POINTER(c_int32))
    return lambda: int(number[0])
