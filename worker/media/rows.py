"""The encoded rows of media, kept by entry number, and the application of a plan to them.

A plan schedules a part of the work on an entry in each step. Only the engine decides what begins, continues or is
dropped. An entry may also be filled from the disk, by another thread (`../disk/rows_on_disk.py`).
"""

import threading
from collections.abc import Callable, Sequence

import numpy

from ...kernels.arrays import Array, DeviceArray
from ...kernels.operands import PlacedRows
from ...protocol.media import Encode, MediaRows
from ...protocol.messages import StepPlan
from ...protocol.wire import values
from ..plan_error import PlanError, require
from .arrangement import arrangement_of
from .encoder_pass import EncoderPass
from .medium_encoding import MediumEncoding


class KeptMedia:
    """The entries on one rank; every rank encodes all of them itself."""

    def __init__(self, encoding: EncoderPass, num_rows: int) -> None:
        config, placement = encoding.encoder.config, encoding.encoder.placement
        self.encoding = encoding
        self.config = config
        self.rows = encoding.device.zeros((num_rows, config.row_parts * config.out_size), placement.activations)
        self._free = list(range(num_rows))[::-1]
        self._of_entries: dict[int, Array] = {}  # int64: rows by entry
        # Of these, those that a thread may still fill from the disk: neither dropped nor begun to be encoded.
        self._coming: set[int] = set()
        self._filling = threading.Lock()
        self._begun: MediumEncoding | None = None

    def apply(self, plan: StepPlan) -> None:
        """Drop and encode entries as planned."""
        for entry in values(plan.dropped_entries):
            require(entry in self._of_entries, f"drops entry {entry}, which isn't there")
            self._end_coming(entry)
            self._free += self._of_entries.pop(entry).tolist()
            if self._begun is not None and self._begun.entry == entry:
                self._end()
        for encode in plan.encodes:
            self._encode(encode)

    def reserve(self, entry: int, num_rows: int) -> None:
        """Take rows for an entry that `fill` fills from another thread."""
        require(entry not in self._of_entries, f"fetches entry {entry}, which is there")
        self._of_entries[entry] = self._taken(num_rows)
        self._coming.add(entry)

    def rows_of(self, entry: int) -> Array | None:
        """The numbers of an entry's rows; None if it was dropped. Callable from any thread."""
        return self._of_entries.get(entry)

    def fill(self, entry: int, copy: Callable[[], None]) -> bool:
        """Copy something into a coming entry's rows; False if it is no longer wanted. Callable from any thread."""
        with self._filling:
            if entry not in self._coming:
                return False
            copy()
            return True

    def _end_coming(self, entry: int) -> None:
        if entry in self._coming:
            with self._filling:
                self._coming.remove(entry)

    def _taken(self, num_rows: int) -> Array:
        require(0 < num_rows <= len(self._free), f"takes {num_rows} rows, with {len(self._free)} free")
        return numpy.array([self._free.pop() for _ in range(num_rows)], numpy.int64)

    def placed(self, media: Sequence[MediaRows], query_starts: Sequence[int]) -> PlacedRows | None:
        """Which tokens of the step get which rows."""
        if not media:
            return None
        tokens, rows = [], []
        for each in media:
            own = self._of_entries.get(each.entry)
            is_there = own is not None and (self._begun is None or each.entry != self._begun.entry)
            require(is_there, f"asks for rows of entry {each.entry}, which isn't encoded")
            require(
                0 <= each.row < len(query_starts) - 1
                and 0 <= each.offset < each.offset + each.count
                and query_starts[each.row] + each.offset + each.count <= query_starts[each.row + 1]
                and 0 <= each.first <= each.first + each.count <= len(own),  # type: ignore[arg-type]
                f"puts {each.count} rows from {each.first} on at token {each.offset} of row {each.row}",
            )
            start = query_starts[each.row] + each.offset
            tokens.append(numpy.arange(start, start + each.count))
            rows.append(own[each.first : each.first + each.count])  # type: ignore[index]
        put = self.encoding.device.put
        return PlacedRows(self.rows, put(numpy.concatenate(tokens)), put(numpy.concatenate(rows)))

    def seen_ends(
        self, media: Sequence[MediaRows], query_starts: Sequence[int], context_lengths: Sequence[int]
    ) -> Array | None:
        """[T] int64: ends of what tokens see. Tokens with rows of one span see its end, if the model wants that."""
        if not self.config.family.has_whole_spans:
            return None
        counts = numpy.diff(query_starts)
        firsts = numpy.array(context_lengths) - counts - query_starts[:-1]  # from a token's number to its position
        ends: Array = numpy.repeat(firsts, counts) + numpy.arange(1, query_starts[-1] + 1)
        for each in media:
            start = query_starts[each.row] + each.offset
            ends[start : start + each.count] = ends[start + each.count - 1]
        return ends

    def _encode(self, encode: Encode) -> None:
        if encode.first == 0:
            self._begin(encode)
        begun, end = self._begun, encode.first + encode.count
        if begun is None or begun.entry != encode.entry:
            raise PlanError(f"The plan goes on with entry {encode.entry}, which hasn't begun or is encoded.")
        require(
            begun.done == encode.first < end <= begun.work,
            f"does {encode.first} to {end} of {begun.work} parts of the work on entry {encode.entry}, with "
            f"{begun.done} done",
        )
        begun.compute(end)
        if end == begun.work:
            self._end()

    def _end(self) -> None:
        self._begun = None
        self.encoding.end()

    def _begin(self, encode: Encode) -> None:
        arrangement = arrangement_of(encode.shape, self.config)
        num_rows, num_pixels = arrangement.num_rows, int(numpy.prod(encode.shape))
        is_there = encode.entry in self._of_entries
        require(not is_there or encode.entry in self._coming, f"encodes entry {encode.entry}, which is there")
        require(self._begun is None, f"begins entry {encode.entry} amid another")
        require(
            num_rows == encode.num_rows and 3 * num_pixels == len(encode.pixels) and encode.work > 0,
            f"encodes {len(encode.pixels)} bytes as {encode.num_rows} rows, which make {num_rows}",
        )
        self._end_coming(encode.entry)
        own = self._of_entries[encode.entry] if is_there else self._taken(num_rows)
        require(len(own) == num_rows, f"encodes {num_rows} rows into entry {encode.entry}, which has {len(own)}")
        self._of_entries[encode.entry] = own
        width = self.config.out_size

        def keep(part: int, numbers: Array, merged: DeviceArray) -> None:
            self.rows[own[numbers], part * width : (part + 1) * width] = merged

        self._begun = MediumEncoding(encode, arrangement, self.encoding, keep)
