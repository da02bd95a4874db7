"""Memory that the ranks of one machine share, and the kernels that wait for one another in it.

Every rank makes one piece of memory without a name, which ends with the processes that map it, and maps the others'. It
begins with the rank's counter, by which ranks wait for one another; behind it lie areas of one size, which whoever uses
them divides among its calls.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from ctypes import c_void_p

import numpy

from ..arrays import Array, address
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
    """What rank 0 says and all others read."""

    _BYTES = 64 << 10

    def __init__(self, rank: int, size: int, exchange: Exchange, meet: Callable[[int], None]) -> None:
        self._memory = SharedMemory(rank, size, exchange, 2, self._BYTES)
        self._meet = meet
        self._turn = 0

    def broadcast(self, x: Array) -> Array:
        """Rank 0's contiguous `x`, in place, on every rank."""
        flat = x.reshape(-1, copy=False).view(numpy.uint8)
        for start in range(0, len(flat), self._BYTES):
            piece = flat[start : start + self._BYTES]
            # Two areas in turn: who meets here again has read what was said before.
            self._turn ^= 1
            said = self._memory.area(self._turn, rank=0)[: len(piece)]
            if self._memory.rank == 0:
                said[:] = piece
            self._meet(ctypes.addressof(self._memory.meeting))
            if self._memory.rank > 0:
                piece[:] = said
        return x
