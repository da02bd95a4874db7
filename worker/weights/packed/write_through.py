"""Packed weights of a model larger than memory: each is written to the cached file when packed, and used from it.

Written weights are mapped, and the system can drop and reread the file's pages. So a load never has more in memory than
the weight being packed. A load that ends before all weights were read leaves nothing behind.
"""

import logging
import mmap
import os
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy

from ....kernels.arrays import Array
from ....kernels.cpu.weights.huge_pages import begin_anew
from ....kernels.cpu.weights.packed import NativeWeight
from ....protocol.errors import OutOfMemoryError
from .kept_files import LARGEST_SHARE, UnfinishedFile
from .packed_file import WeightWriter

_LOG = logging.getLogger(__name__)
_WINDOW = 1 << 30  # bytes mapped at once beyond the expected size
_DIRTY_PIECES = 8  # 8 MiB pieces of the file between two waits for the disk
_SLACK = 16  # packed weights exceed the estimate by one part in so many at most


class WrittenThrough:
    """A file being written."""

    def __init__(self, unfinished: UnfinishedFile, expected: int) -> None:
        self._unfinished: UnfinishedFile | None = unfinished
        self._file = unfinished.file
        self._writer = WeightWriter(self._file, unfinished.path.name, self._pause)
        self._num_pieces = 0
        self._since = time.monotonic()
        self._window: mmap.mmap
        self._window_at = 0
        self._open_window(0, expected)

    @classmethod
    def begin(cls, path: Path, nbytes: int) -> "WrittenThrough | None":
        """Begin a file for about so many bytes; None if another process has made it meanwhile. Raises `NoRoom`."""
        expected = nbytes + nbytes // _SLACK
        unfinished = UnfinishedFile.begin(path, expected, LARGEST_SHARE, waits=True)
        return None if unfinished is None else cls(unfinished, expected)

    def add(self, name: str, weight: NativeWeight) -> NativeWeight:
        """Write a weight; return it in the file's pages."""
        try:
            offsets = self._writer.add(name, weight)
        except OSError as error:
            raise OutOfMemoryError(
                f"The model is larger than memory, and its packed weights can't be written ({error}). Free some of the "
                "disk that PENSTOCK_CACHE is on, or set it to a folder on another one."
            ) from error
        begin_anew()
        given: dict[str, Array] = {field.name: getattr(weight, field.name) for field in fields(weight)}
        mapped: dict[str, Any] = {name: self._mapped(given[name], at) for name, at in offsets.items()}
        return replace(weight, **mapped)

    def complete(self) -> None:
        """Give the file its final name."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        try:
            self._writer.finish()
            unfinished.complete()
        except OSError as error:  # this start isn't affected
            _LOG.warning("Packed weights are not kept for the next start: %s", error)
            unfinished.forget()
            return
        size, seconds = os.fstat(self._file).st_size, time.monotonic() - self._since
        _LOG.info("Packed weights (%.2f GB) were kept in %s in %.1f s", size / 1e9, unfinished.path, seconds)

    def close(self) -> None:
        """Remove the file of an unfinished load. Mapped weights stay usable."""
        if self._unfinished is not None:
            self._unfinished.forget()
            self._unfinished = None

    def _mapped(self, array: Array, at: int) -> Array:
        if at + array.nbytes > self._window_at + len(self._window):
            self._open_window(at // mmap.PAGESIZE * mmap.PAGESIZE, max(_WINDOW, array.nbytes + mmap.PAGESIZE))
        octets = numpy.frombuffer(self._window, numpy.uint8, array.nbytes, at - self._window_at)
        return octets.view(array.dtype).reshape(array.shape)

    def _open_window(self, at: int, nbytes: int) -> None:
        # mmap(2) allows mapping beyond the end of a file; Python requires the file to be that long already.
        os.ftruncate(self._file, max(at + nbytes, os.fstat(self._file).st_size))
        self._window = mmap.mmap(self._file, nbytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=at)
        self._window_at = at

    def _pause(self) -> None:
        """Wait for the disk: flushed pages can be dropped at once, others would fill a small memory."""
        self._num_pieces += 1
        if self._num_pieces % _DIRTY_PIECES == 0:
            os.fdatasync(self._file)
