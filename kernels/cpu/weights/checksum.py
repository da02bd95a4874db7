"""Checksums of weights, computed about as fast as memory is read.

`source/checksum.cpp` sums up pieces, and a digest joins their sums.
"""

import hashlib

import numpy

from ...arrays import Array
from ..library import load, struct_of
from ..structs import Checksum

PIECE = 1 << 20  # bytes; what is added in parts has to be cut at multiples of it
_SUMS = 16  # of 64 bits for each piece


class RunningChecksum:
    """Grows with each contiguous array whose bytes are added."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, content: Array) -> "RunningChecksum":
        sums = numpy.empty((-(-content.nbytes // PIECE), _SUMS), numpy.int64)
        load().call("penstock_checksum", struct_of(Checksum, content, content.nbytes, PIECE, sums))
        self._digest.update(sums.data)
        return self

    def text(self) -> str:
        """So far, in hexadecimal digits."""
        return self._digest.hexdigest()
