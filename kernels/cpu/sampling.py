"""The operations on logits by native kernels, on numpy's arrays.

Unlike the kernels of a recorded step these are called one by one, with arguments made for the call. No logits are
copied; masks, penalties and additions alone overwrite them.
"""

from typing import Any

import numpy

from ...records import dataclass
from ..arrays import Array
from ..sampling import BLOCK, Draws, Histories, RankedLogprobs, Scan, sorted_by_row
from . import structs
from .library import Library, Struct, struct_of

# Beyond so many numpy is as quick: it sorts whole rows with vector instructions.
_MOST_IN_ORDER = 16384


@dataclass(frozen=True)
class NativeSampling:
    library: Library

    def scan(self, logits: Array) -> Scan:
        logits, rows = _plain(logits), len(logits)
        found = Scan(
            numpy.empty(rows, numpy.float32),
            numpy.empty(rows, numpy.int64),
            numpy.empty(rows, numpy.bool_),
            _maxima(logits),
        )
        self._call("scan", structs.Scan, _logits(logits, found.maxima), *found[:3])
        return found

    def choose(self, logits: Array, scanned: Scan, draws: Draws) -> Array:
        logits = _plain(logits)
        token_ids = numpy.empty(len(logits), numpy.int64)
        sums = numpy.empty(scanned.maxima.shape, numpy.float64)
        columns = struct_of(structs.DrawColumns, kinds=draws.kinds, **draws.columns._asdict())
        scanned_columns = _logits(logits, scanned.maxima), scanned.largest, scanned.best
        self._call("choose", structs.Choose, *scanned_columns, columns, None, draws.positions, sums, token_ids)
        return token_ids

    def most_likely(self, values: Array, count: int) -> tuple[Array, Array]:
        if count > _MOST_IN_ORDER:
            ids = sorted_by_row(values, count)
            return numpy.take_along_axis(values, ids, -1), ids
        values = _plain(values)
        ordered = numpy.empty((len(values), count), numpy.float32)
        ids = numpy.empty((len(values), count), numpy.int64)
        maxima = _maxima(values)
        self._call("most_likely", structs.MostLikely, _logits(values, maxima), count, ordered, ids)
        return ordered, ids

    def ranked_logprobs(self, logits: Array, chosen: Array, num_top: int) -> RankedLogprobs:
        logits, chosen = _plain(logits), numpy.ascontiguousarray(chosen, numpy.int64)
        rows, maxima = len(logits), _maxima(logits)
        sums, ahead = numpy.empty(maxima.shape, numpy.float64), numpy.empty(maxima.shape, numpy.int32)
        found = RankedLogprobs(
            numpy.empty((rows, 1 + num_top), numpy.int32),
            numpy.empty((rows, 1 + num_top), numpy.float32),
            numpy.empty(rows, numpy.int32),
        )
        arguments = _logits(logits, maxima), chosen, num_top, sums, ahead, *found
        self._call("ranked_logprobs", structs.RankedLogprobs, *arguments)
        return found

    def apply_mask(self, logits: Array, rows: Array, bits: Array) -> Array:
        bits = numpy.ascontiguousarray(bits)
        self._call("apply_mask", structs.ApplyMask, logits, logits.shape[1], len(rows), rows, bits)
        return logits

    def penalize_repetition(self, logits: Array, histories: Histories, penalty: Array) -> Array:
        penalty = numpy.ascontiguousarray(penalty)
        self._call("penalize_repetition", structs.PenalizeRepetition, _history(logits, histories), penalty)
        return logits

    def penalize_generated(
        self, logits: Array, histories: Histories, starts: Array, frequency: Array, presence: Array
    ) -> Array:
        columns = [numpy.ascontiguousarray(column) for column in (starts, frequency, presence)]
        self._call("penalize_generated", structs.PenalizeGenerated, _history(logits, histories), *columns)
        return logits

    def add(self, logits: Array, rows: Array, token_ids: Array, added: Array) -> Array:
        numpy.add.at(logits, (rows, token_ids), added)
        return logits

    def _call(self, kernel: str, kind: type[Struct], *values: Any) -> None:
        self.library.call(f"penstock_{kernel}", struct_of(kind, *values))


def _plain(logits: Array) -> Array:
    """As the kernels read them; nearly always they are so already."""
    return numpy.ascontiguousarray(logits, numpy.float32)


def _logits(values: Array, maxima: Array) -> structs.Logits:
    return struct_of(structs.Logits, values, *values.shape, maxima)


def _maxima(logits: Array) -> Array:
    return numpy.empty((len(logits), -(-logits.shape[1] // BLOCK)), numpy.float32)


def _history(logits: Array, histories: Histories) -> structs.History:
    rows, tokens, slots, lengths, _ = histories
    width, stride = logits.shape[1], tokens.strides[0] // tokens.itemsize
    return struct_of(structs.History, logits, width, len(rows), rows, tokens, stride, slots, lengths)
