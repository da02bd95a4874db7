"""The records of a journal's frames, each checked against the head before it.

A frame that is whole may still hold what no job of this version writes: a later version's record, or what damage or a
stranger has left. Everybody who reads a journal reads it here, so that nothing behind this file meets such a record.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ....protocol.errors import ConfigError
from .journal import JournalFrame, read_journal
from .records import Answered, Began, Continued, Died, Forgotten, Head, Pattern, Progressed, Record, unpacked

# Rows are answered roughly in order, so a journal has no row beyond its own length in bytes and some.
_ROWS_AHEAD = 1 << 20
_UNREADABLE = "isn't a record that this version knows"


def read_records(journal: Path) -> Iterator[tuple[JournalFrame, Record]]:
    """All records of a journal, which another process may be writing; raises at the first that can't be a job's."""
    return checked(journal, read_journal(journal))


def checked(journal: Path, frames: Iterable[JournalFrame]) -> Iterator[tuple[JournalFrame, Record]]:
    check = _Check()
    for found in frames:
        try:
            record = unpacked(found.record)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            fault: str | None = _UNREADABLE
        else:
            fault = check.fault(record, found.end + _ROWS_AHEAD)
        if fault is not None:
            raise ConfigError(
                f"The journal {journal} has at byte {found.offset:,} what {fault}: it is damaged, or a later version "
                "of Penstock has written it. Use that version, restore the file, or move it away to start again."
            )
        yield found, record


class _Check:
    """What the records so far say about those to come."""

    def __init__(self) -> None:
        self._num_rows: int | None = None  # None before the head
        self._num_samples: dict[int, int] = {}  # by unfinished row

    def fault(self, record: Record, most_rows: int) -> str | None:
        """Why no job can have written this record; None if one can."""
        if isinstance(record, Head):
            return self._take_head(record)
        if self._num_rows is None:
            return "stands before the head"
        most = min(self._num_rows, most_rows)
        if (wrong := next((row for row in _rows(record) if not 0 <= row < most), None)) is not None:
            return f"is of row {wrong:,}, which the job hasn't"
        if any(not 0 <= number < math.inf for number in _counts(record)):
            return "has a figure that is none"
        return self._take_samples(record)

    def _take_head(self, head: Head) -> str | None:
        if head.num_rows < 0:
            return f"is a head with {head.num_rows:,} rows"
        # Rows that an accepted change has removed may still be forgotten under the next head.
        self._num_rows = max(head.num_rows, self._num_rows or 0)
        self._num_samples.clear()
        return None

    def _take_samples(self, record: Record) -> str | None:
        if isinstance(record, Continued):
            if (num := self._num_samples.setdefault(record.row, len(record.said))) != len(record.said):
                return f"continues {len(record.said):,} samples of row {record.row:,}, which has {num:,}"
        else:
            for row in _rows(record) if isinstance(record, Answered | Forgotten) else ():
                self._num_samples.pop(row, None)
        return None


def _rows(record: Record) -> Iterable[int]:
    match record:
        case Answered() | Continued():
            return (record.row,)
        case Forgotten() | Died():
            return record.rows
        case _:
            return ()


def _counts(record: Record) -> Iterable[float]:
    match record:
        case Answered():
            return (
                record.line_digest, record.num_prompt, record.num_cached, record.num_output, record.num_draft_tokens,
                record.num_accepted_tokens, *record.prompt_keys,
            )  # fmt: skip
        case Progressed():
            return record.seconds, record.num_running, record.peak_bytes, record.joules
        case Head() | Pattern() | Continued() | Forgotten() | Died() | Began():
            return ()
