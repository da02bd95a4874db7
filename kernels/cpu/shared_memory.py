"""Memory that the ranks of one machine share, and the kernels that wait for one another in it.

Every rank makes one piece of memory without a name, which ends with the processes that map it, and maps the others'. It
begins with the rank's counter, by which ranks wait for one another; behind it lie areas of one size, which whoever uses
them divides among its calls.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from ctypes import c_void_p

import numpy

from ..arrays import Array, address
from .program import Program
from .structs import Meeting

# From this rank's own numbers to those of all ranks, in their order.
Exchange = Callable[[list[int]], list[list[int]]]

_PAGE = 4096


class SharedMemory:
    """`num_areas` areas of `area_bytes` in each rank's memory."""

    def __init__(self, rank: int, size: int, exchange: Exchange, num_areas: int, area_bytes: int) -> None:
        self.rank = rank
        self.size = size
        self.area_bytes = -(-area_bytes // _PAGE) * _PAGE
        total = _PAGE + num_areas * self.area_bytes
        own = os.memfd_create("penstock-ranks", os.MFD_CLOEXEC)
        os.ftruncate(own, total)
        found = exchange([os.getpid(), own])
        self._maps = [_mapped(f"/proc/{process}/fd/{descriptor}", total) for process, descriptor in found]
        exchange([])  # everyone has mapped everyone's
        os.close(own)
        self._memories = [numpy.frombuffer(each, numpy.uint8) for each in self._maps]
        self._arrivals = (c_void_p * size)(*map(address, self._memories))
        self.meeting = Meeting(rank, size, ctypes.addressof(self._arrivals))

    def area(self, number: int, rank: int | None = None) -> Array:
        """An area's bytes in a rank's memory, its own if not said."""
        first = _PAGE + number * self.area_bytes
        return self._memories[self.rank if rank is None else rank][first : first + self.area_bytes]

    def record_sum(self, program: Program, number: int, width: int) -> None:
        """Record what comes before an area's rows are added up: nothing, since all are there once ranks have met."""

    def record_gather(self, program: Program, first: int, last: int, width: int) -> None:
        """Record that rank 0 gets these columns of its area 0 from this rank, which has written them there."""
        # Before anyone writes, rank 0 must have read what was written last.
        program.call_first("penstock_meet", self.meeting, keep=self)
        program.call("penstock_meet", self.meeting)

    def parts(self, number: int) -> "ctypes.Array[c_void_p]":
        """The addresses of an area in all ranks' memories."""
        return (c_void_p * self.size)(*(address(self.area(number, rank)) for rank in range(self.size)))


def _mapped(path: str, total: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, total, mmap.MAP_SHARED)
    finally:
        os.close(descriptor)


class Board:
    """Memory in which ranks show one another an array, piece by piece."""

    _BYTES = 1 << 20  # of a piece; memory that no array reaches is never touched

    def __init__(self, rank: int, size: int, exchange: Exchange, meet: Callable[[int], object]) -> None:
        """`meet` waits for the other ranks; it gets the address of the memory's `Meeting`."""
        self._memory = SharedMemory(rank, size, exchange, 2, self._BYTES)
        self.meet = meet
        self._turn = 0

    def broadcast(self, x: Array) -> None:
        """Rank 0's `x`, in place, on every rank."""
        for piece, of_ranks in self._pieces(x):
            piece[:] = of_ranks[0]

    def all_reduce(self, x: Array) -> None:
        """The sum over the ranks, in place, added in their order."""
        for piece, of_ranks in self._pieces(x):
            total, parts = piece.view(x.dtype), [part.view(x.dtype) for part in of_ranks]
            total[:] = parts[0]
            with numpy.errstate(all="ignore"):  # infinite numbers are a matter of whoever reads the sum
                for part in parts[1:]:
                    total += part

    def all_gather(self, x: Array) -> list[Array]:
        """Every rank's array, all of one shape, in the order of the ranks."""
        found = numpy.empty((self._memory.size, x.nbytes), numpy.uint8)
        first = 0
        for piece, of_ranks in self._pieces(x):
            for octets, part in zip(found, of_ranks, strict=True):
                octets[first : first + len(piece)] = part
            first += len(piece)
        return [octets.view(x.dtype).reshape(x.shape) for octets in found]

    def _pieces(self, x: Array) -> Iterator[tuple[Array, list[Array]]]:
        """Pieces of a contiguous array, as octets, and what every rank has there."""
        octets = x.reshape(-1).view(numpy.uint8)
        memory, ranks = self._memory, range(self._memory.size)
        for first in range(0, len(octets), self._BYTES):
            piece = octets[first : first + self._BYTES]
            # Two areas in turn: who meets here again has read what was shown before.
            self._turn ^= 1
            memory.area(self._turn)[: len(piece)] = piece
            self.meet(ctypes.addressof(memory.meeting))
            yield piece, [memory.area(self._turn, rank)[: len(piece)] for rank in ranks]
