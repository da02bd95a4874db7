"""The answers in a job's journal, by row: the last one of each, with its receipt if it is wanted."""

from array import array
from bisect import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...receipts.receipt import PREFIX, Receipt
from ...rows.texts import EMBED
from .checked_records import read_records
from .journal import JournalFrame, record_at
from .kept_receipts import receipt_of, with_receipt
from .records import Answered, Forgotten, Head, Pattern, unpacked

_NUMBER_BYTES = 4
_IN_LINE = b'"' + PREFIX.encode()


class KeptAnswer(NamedTuple):
    record: Answered
    pattern: bytes  # of its receipt

    @property
    def has_receipt(self) -> bool:
        return bool(self.record.receipt) or _IN_LINE in self.record.line  # as earlier versions kept it

    def receipt(self) -> Receipt | None:
        """The receipt, unless the record has none, or has it in the line. Raises `RequestError` if it is damaged."""
        return receipt_of(self.record, self.pattern)

    def line_with_receipt(self) -> bytes:
        receipt = self.receipt()
        return self.record.line if receipt is None else with_receipt(self.record, receipt)


class KeptAnswers:
    """The answers that a journal has now; another process may be appending to it."""

    def __init__(self, journal: Path) -> None:
        self._patterns: list[bytes] = [b""]
        self._places: list[int] = []  # from which each of the others holds
        self._head: Head | None = None
        self._offsets = by_row(journal, lambda found, record: found.offset + 1, self._add)
        self._file = open(journal, "rb")

    def __enter__(self) -> "KeptAnswers":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[KeptAnswer]:
        found = map(self.at, range(len(self._offsets)))
        return (answer for answer in found if answer is not None)

    def at(self, row: int) -> KeptAnswer | None:
        if not 0 <= row < len(self._offsets) or not (offset := self._offsets[row]):
            return None
        record = unpacked(record_at(self._file, offset - 1))
        return (
            KeptAnswer(record, self._patterns[bisect(self._places, offset)]) if isinstance(record, Answered) else None
        )

    @property
    def shape(self) -> tuple[int, int] | None:
        """Of a job that embeds, how many rows it has, and how many numbers a vector; None of any other."""
        if self._head is None or self._head.facts.get("task") != EMBED:
            return None
        vectors = (answer.record.vector for answer in self)
        return self._head.num_rows, next((len(each) // _NUMBER_BYTES for each in vectors if each), 0)

    def _add(self, offset: int, record: Pattern | Head) -> None:
        if isinstance(record, Head):
            self._head = record
            return
        self._places.append(offset)
        self._patterns.append(record.content)


def by_row(
    journal: Path,
    figure: Callable[[JournalFrame, Answered], int],
    on_other: Callable[[int, Pattern | Head], None] = lambda offset, record: None,
) -> "array[int]":
    """A figure of each row's last answer; 0 for a row without one, or that is to be answered again."""
    figures = array("Q")
    for found, record in read_records(journal):
        if isinstance(record, Answered):
            if record.row >= len(figures):
                figures.frombytes(bytes(8 * (record.row + 1 - len(figures) + (len(figures) >> 3))))
            figures[record.row] = figure(found, record)
        elif isinstance(record, Forgotten):
            for row in record.rows:
                if row < len(figures):
                    figures[row] = 0
        elif isinstance(record, Pattern | Head):
            on_other(found.offset, record)
    return figures
