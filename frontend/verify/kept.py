"""Receipts from a job's journal: of the answers in its output next to it, or of a journal that is itself verified."""

from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.errors import PenstockError, RequestError
from ...protocol.options.speculation import JOURNAL
from ..jobs.journal.checked_records import read_records
from ..jobs.journal.kept_answers import KeptAnswer, KeptAnswers
from ..jobs.journal.records import Head
from ..receipts.receipt import Receipt


class _Label(msgspec.Struct):
    custom_id: str | None = None


_LABELS = msgspec.json.Decoder(_Label)


def lines_of_journal(path: Path) -> Iterator[tuple[bytes, RequestError | None]]:
    """The lines of a journal's answers, with their receipts; with the reason, where one has a damaged one."""
    with KeptAnswers(path) as answers:
        for answer in answers:
            if answer.record.has_failed:
                continue
            try:
                yield answer.line_with_receipt(), None
            except RequestError as error:
                yield answer.record.line, error


def model_of_journal(path: Path) -> str | None:
    """The model that a journal's head names, or that of the journal next to an output."""
    journal = path if path.suffix == JOURNAL else _journal_of(path)
    if not journal.is_file():
        return None
    with suppress(PenstockError, OSError):
        for _, record in read_records(journal):
            return (record.facts.get("model") or None) if isinstance(record, Head) else None
    return None


def _journal_of(output: Path) -> Path:
    target = output.resolve()  # as a job does, whose output may be a symbolic link
    return target.with_name(target.name + JOURNAL)


class ReceiptsBeside:
    """The receipts of an output's answers in the journal next to it, which is read once one is wanted."""

    def __init__(self, output: Path) -> None:
        self.journal = _journal_of(output)
        self.hindrance = ""  # why it isn't used

    def of(self, line: Mapping[str, Any]) -> Receipt | None:
        """The receipt of the answer that was written as this line. Raises `RequestError` if it is damaged."""
        if self._answers is None:
            return None
        if isinstance(name := line.get("custom_id"), str):
            found = self._named(self._answers, name)
        else:
            index = line.get("index")
            found = self._answers.at(index) if type(index) is int else None
        return None if found is None or found.record.has_failed else found.receipt()

    def close(self) -> None:
        if "_answers" in self.__dict__ and self._answers is not None:
            self._answers.close()

    @cached_property
    def _answers(self) -> KeptAnswers | None:
        if not self.journal.exists():
            self.hindrance = f"{self.journal} isn't there"
        elif not self.journal.is_file():
            self.hindrance = f"{self.journal} is not a file"
        else:
            try:
                return KeptAnswers(self.journal)
            except (PenstockError, OSError) as error:  # another kind of file, or a damaged one
                self.hindrance = str(error)
        return None

    def _named(self, answers: KeptAnswers, name: str) -> KeptAnswer | None:
        keys, rows = self._rows
        import numpy

        key = numpy.uint64(_key(name))
        for place in range(int(numpy.searchsorted(keys, key)), len(keys)):
            if keys[place] != key:
                break
            found = answers.at(int(rows[place]))
            if found is not None and _name_in(found) == name:
                return found
        return None

    @cached_property
    def _rows(self) -> tuple[Any, Any]:
        """The hashes of all names, sorted, and their rows."""
        import numpy  # slow

        keys, rows = array("Q"), array("Q")
        for found in self._answers or ():
            if (name := _name_in(found)) is not None:
                keys.append(_key(name))
                rows.append(found.record.row)
        every = numpy.frombuffer(keys, numpy.uint64)
        order = numpy.argsort(every)
        return every[order], numpy.frombuffer(rows, numpy.uint64)[order]


def _name_in(answer: KeptAnswer) -> str | None:
    try:
        return _LABELS.decode(answer.record.line).custom_id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
