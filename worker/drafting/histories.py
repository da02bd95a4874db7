"""The histories of the slots that may be drafted for, as numpy arrays on the host, whatever device computes."""

from collections.abc import Sequence
from typing import Protocol

import numpy

from ..steps.slots import SlotTable
from ..steps.step_rows import Ints


class Histories(Protocol):
    def enter(self, slot: int, token_ids: bytes) -> None:
        """Take in a sequence that enters a slot with these tokens, packed as int32."""

    def read(self, slots: Sequence[int]) -> list[Ints]:
        """Return the known tokens of these slots, int32, valid until the next step."""


class OwnHistories:
    """Reads the table's own memory, on a CPU."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table

    def enter(self, slot: int, token_ids: bytes) -> None:
        pass

    def read(self, slots: Sequence[int]) -> list[Ints]:
        table = self._table
        return [table.device.host_copy(table.histories[slot, : int(table.num_tokens[slot])])() for slot in slots]


class CopiedHistories:
    """Keeps copies of a GPU's histories (`worker/backends/torch/device.py`) on the host, and extends them.

    Only the tokens that are new since the last look are copied, those of all slots at once. The copy waits for the
    steps before it. A known token never changes: drafts aren't known.
    """

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._copies: dict[int, Ints] = {}  # by slot, as long as any history may be
        self._counts = numpy.zeros(len(table.is_taken), numpy.int64)  # tokens that are copied

    def enter(self, slot: int, token_ids: bytes) -> None:
        tokens = numpy.frombuffer(token_ids, numpy.int32)
        if slot not in self._copies:
            self._copies[slot] = numpy.empty(self._table.max_model_len, numpy.int32)
        self._copies[slot][: len(tokens)] = tokens
        self._counts[slot] = len(tokens)

    def read(self, slots: Sequence[int]) -> list[Ints]:
        rows = numpy.array(slots, numpy.int64)
        starts, ends = self._counts[rows], self._table.num_tokens[rows]
        if (ends > starts).any():
            self._copy(rows, starts, ends)
        return [self._copies[slot][:end] for slot, end in zip(slots, ends.tolist())]

    def _copy(self, rows: Ints, starts: Ints, ends: Ints) -> None:
        device, counts = self._table.device, ends - starts
        firsts = numpy.cumsum(counts) - counts
        positions = numpy.arange(counts.sum()) + numpy.repeat(starts - firsts, counts)
        tokens = device.host_copy(
            self._table.histories[device.put(numpy.repeat(rows, counts)), device.put(positions)]
        )()
        for slot, first, start, end in zip(rows.tolist(), firsts.tolist(), starts.tolist(), ends.tolist()):
            self._copies[slot][start:end] = tokens[first : first + end - start]
        self._counts[rows] = ends
