"""Reads and writes the rows of media for `WorkerDisk`: all rows of one medium are the only block of a file.

They are copied a piece at a time. A step may drop or encode the entry meanwhile: a fetch then ends, and what is being
written is given up.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy

from ...kernels.arrays import Array
from ...protocol.layer_groups import FetchRows, StoreRows
from ..media.rows import KeptMedia
from .segment import DamagedSegment, Segment, SegmentWriter
from .segment_folder import SegmentFolder

_PIECE = 1 << 20  # bytes of rows copied at once


class _NotWanted(Exception):
    """The entry was dropped, or is encoded."""


class RowsOnDisk:
    def __init__(self, folder: SegmentFolder, group: int, media: KeptMedia, rows: Array) -> None:
        """`group`: the number that their files have as theirs; `rows`: the memory of `media`, [rows, width]."""
        self._folder = folder
        self._group = group
        self._media = media
        self._rows = rows
        self._row_bytes = rows[0].nbytes
        self._most = max(1, _PIECE // self._row_bytes)  # rows of a piece

    def reserve(self, fetch: FetchRows) -> None:
        """Take the rows that it fills, between two steps."""
        self._media.reserve(fetch.entry, fetch.num_rows)

    def fetch(self, fetch: FetchRows, drop: Callable[[Segment, str], None]) -> bool:
        """Read rows into their entry. Returns whether they were there and intact, and are still wanted; `drop` gets a
        damaged file, and why it is one."""
        found, rows = self._folder.find(self._group, fetch.key), self._media.rows_of(fetch.entry)
        if found is None or rows is None:
            return False
        segment = found[0]
        try:
            if segment.block_bytes != len(rows) * self._row_bytes:
                raise DamagedSegment("it has a different number of rows")
            with segment.opened() as file:
                if segment.read_block(file, 0, self._filling(fetch.entry, rows)):
                    self._folder.use(self._group, fetch.key)
                    return True
            raise DamagedSegment("the checksum of its rows differs")
        except (DamagedSegment, OSError) as error:
            drop(segment, str(error))
        except _NotWanted:
            pass
        return False

    def _filling(self, entry: int, rows: Array) -> Iterator[Array]:
        """Yield pieces to be filled; each is copied when the next is asked for."""
        piece = numpy.empty((min(len(rows), self._most), *self._rows.shape[1:]), self._rows.dtype)
        for start in range(0, len(rows), self._most):
            own = rows[start : start + self._most]
            yield piece[: len(own)]
            if not self._media.fill(entry, partial(self._rows.__setitem__, own, piece[: len(own)])):
                raise _NotWanted

    def write(self, store: StoreRows, pause: Callable[[], None]) -> Segment | None:
        """Write rows; None if their entry was dropped before. `pause` is called after each piece. Raises OSError."""
        rows = self._media.rows_of(store.entry)
        if rows is None or self._folder.find(self._group, store.key) is not None:
            return None
        num_bytes = len(rows) * self._row_bytes
        if not self._folder.make_room(num_bytes):
            raise OSError("the disk is full, or prefix_cache_size is too small for them")
        writer = SegmentWriter(self._folder.folder, self._group, b"", [store.key], num_bytes)
        try:
            writer.add(self._pieces(store.entry, rows, pause))
            return writer.complete()
        except BaseException as error:
            writer.forget()
            if isinstance(error, _NotWanted):
                return None
            raise

    def _pieces(self, entry: int, rows: Array, pause: Callable[[], None]) -> Iterator[Array]:
        for start in range(0, len(rows), self._most):
            piece = self._rows[rows[start : start + self._most]]
            # Nobody has overwritten rows whose entry is still there.
            if self._media.rows_of(entry) is not rows:
                raise _NotWanted
            yield piece
            pause()
