"""The files of an earlier run: a job's journal, or the lines of its output or of any other file of answers.

All answers are read once to index them, and one of them again when a prompt needs it. Packed lines and tables are
unpacked for that into a file without a name in the folder for temporary files.
"""

import gzip
import os
import stat
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from ...protocol.errors import ConfigError, PenstockError
from ...protocol.options.speculation import JOURNAL
from ..jobs.formats.formats import answer_lines_of, is_packed, require_format
from ..jobs.journal.checked_records import read_records
from ..jobs.journal.journal import record_at
from ..jobs.journal.records import Answered, Bits, Head, unpacked
from ..rows.lines import LONGEST_LINE, count_prompts, lines_as_bytes, refuse_utf_16
from .answers import EarlierAnswer


class Found(NamedTuple):
    """An answer, with the number of its row and its offset in the file."""

    row: int
    offset: int
    answer: EarlierAnswer | None  # None if there is none in the line


class EarlierRun(Protocol):
    num_rows: int  # once all answers have been read
    without_prompts: str  # why its answers may have none

    def answers(self) -> Iterator[Found]: ...
    def at(self, offset: int) -> EarlierAnswer | None: ...
    def close(self) -> None: ...


def opened(path: Path) -> EarlierRun:
    """Open the journal if the file is one, or if it is an output whose journal has as many answers; otherwise the file.
    Raises if it can't be read."""
    journal = path if path.suffix == JOURNAL else Path(f"{path}{JOURNAL}")
    if journal == path or _num_answers(journal) >= max(1, _num_lines(path)):
        return JournalAnswers(journal)
    require_format(path)
    return FileAnswers(path)


class JournalAnswers:
    """Answers in a journal, where they have their tokens. Another process may be appending to it."""

    without_prompts = "its journal, of an earlier version, has no prompts"

    def __init__(self, path: Path) -> None:
        self.num_rows = 0
        self._path = path
        self._file = _opened_file(path)
        self._lock = threading.Lock()

    def answers(self) -> Iterator[Found]:
        for found, record in read_records(self._path):
            if isinstance(record, Answered) and not record.has_failed:
                yield Found(record.row, found.offset, _answer_in(record))
            elif isinstance(record, Head):
                self.num_rows = record.num_rows

    def at(self, offset: int) -> EarlierAnswer | None:
        with self._lock:
            record = unpacked(record_at(self._file, offset))
        return _answer_in(record) if isinstance(record, Answered) else None

    def close(self) -> None:
        self._file.close()


class FileAnswers:
    without_prompts = "its lines have no prompts (the journal next to a run's output knows them)"

    def __init__(self, path: Path) -> None:
        self.num_rows = 0
        self._path = path
        self._file = _unpacked(path) if is_packed(path) else _opened_file(path)
        self._lock = threading.Lock()

    def answers(self) -> Iterator[Found]:
        offset = 0
        self._file.seek(0)
        for line in lines_as_bytes(self._file, str(self._path)):
            if not offset:
                refuse_utf_16(line, str(self._path))
            if line.strip():
                yield Found(self.num_rows, offset, EarlierAnswer.of(line))
                self.num_rows += 1
            offset = self._file.tell()

    def at(self, offset: int) -> EarlierAnswer | None:
        with self._lock:
            self._file.seek(offset)
            line = self._file.readline(LONGEST_LINE + 1)
        return EarlierAnswer.of(line)

    def close(self) -> None:
        self._file.close()


def _answer_in(record: Answered) -> EarlierAnswer | None:
    return EarlierAnswer.of(record.line, record.token_ids, record.prompt_keys)


def _opened_file(path: Path) -> BinaryIO:
    """Open a file; raises for anything else: reading a pipe or a device would take forever, and be no second time."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    status = os.fstat(descriptor)
    # Files of the system, some of which are endless, have no length.
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return open(descriptor, "rb")
    os.close(descriptor)
    what = "empty, so it has no answers" if stat.S_ISREG(status.st_mode) else "not a file"
    raise ConfigError(f"{path} is {what}. A run is replayed from its output or its journal: give one of these.")


def _num_answers(journal: Path) -> int:
    """Count the rows that a journal has answers to; 0 if it can't be read to its end."""
    rows, count = Bits(), 0
    try:
        _opened_file(journal).close()
        for _, record in read_records(journal):
            if isinstance(record, Answered) and not record.has_failed:
                count += not rows.put(record.row, True)
    except (OSError, PenstockError):
        return 0
    return count


def _num_lines(path: Path) -> int:
    """Count the lines of a file; 0 if it is packed or isn't there."""
    if is_packed(path):
        return 0
    try:
        with _opened_file(path) as file:
            return count_prompts(file, is_json=True) or 0
    except (OSError, ConfigError):
        return 0


def _unpacked(path: Path) -> BinaryIO:
    """Unpack the lines that can be read into a file that is gone once it is closed."""
    file: BinaryIO = tempfile.TemporaryFile()
    try:
        with _opened_file(path) as raw, suppress(EOFError, zlib.error, gzip.BadGzipFile):
            lines = answer_lines_of(path, raw)
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in lines)  # some are cut
        file.flush()
    except BaseException as error:
        file.close()
        if not isinstance(error, OSError):
            raise
        reason = f"{path} cannot be unpacked into {tempfile.gettempdir()}: {error.strerror or error}."
        raise ConfigError(f"{reason} Unpack it yourself, or set TMPDIR to a folder with room for it.") from error
    return file
