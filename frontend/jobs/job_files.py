"""The files of a job: its output, the file of its failed lines, and the journal that both are made from.

The output has the rows in the input's order, whatever the order in which they were answered. It takes its name once it
is complete and on the disk. Until then it lies in a folder of its own, which the next to write removes if a kill has
left it.
"""

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ...protocol.errors import ConfigError, PenstockError, RequestError
from ...protocol.files.own_folder import own_folder, own_folders, remove_own
from ...protocol.options.speculation import JOURNAL
from ..file_replacement import PARTIAL, new_file, replaceable, sync_folder, take_name
from .formats.formats import sink_of
from .journal.checked_records import read_records
from .journal.kept_answers import KeptAnswer, KeptAnswers, by_row
from .journal.records import Answered, JobState
from .locked_file import open_locked, remove_locked

Write = Callable[[Answered, bytes], object]  # a record and its line
_UNFINISHED = "unfinished output of a job"


class Written(NamedTuple):
    num_answers: int
    num_failed: int
    num_without_receipt: int  # of answers that should have one
    damaged_receipts: list[int]  # the numbers of their lines, which are written without


class JobFiles(NamedTuple):
    output: Path
    errors: Path
    journal: Path

    @classmethod
    def of(cls, output: str | os.PathLike[str]) -> "JobFiles":
        """Raises if the output can't be a file here."""
        if os.fspath(output) == "-":
            raise ConfigError("A job's output is a file, with its journal next to it; it can't be standard output (-).")
        try:
            target = replaceable(os.fspath(output))
        except OSError as error:
            raise ConfigError(f"{error.filename or output} cannot be written: {error.strerror}.") from error
        if target is None:
            raise ConfigError(f"{output} is a pipe or a device. A job's output is a file, with its journal next to it.")
        return cls(*(target.with_name(target.name + end) for end in ("", ".errors.jsonl", JOURNAL)))

    def state(self) -> JobState:
        """The state that the journal has now; another process may be writing it."""
        self.require_journal()
        return JobState.of(record for _, record in read_records(self.journal))

    def export(self, *, with_receipts: bool = False) -> Written:
        """Write what is answered so far."""
        if self.state().head is None:
            raise ConfigError(f"{self.journal} has no record yet, so there is nothing to write.")
        return self.write(with_receipts=with_receipts)

    def require_journal(self) -> None:
        if not self.journal.is_file():
            raise ConfigError(f"{self.journal} isn't there, so no job writes {self.output}, or its journal is gone.")

    def write(self, *, with_receipts: bool = False) -> Written:
        """Write the rows that are answered, in order; those that have failed go to the file of errors. Answers get
        their receipts if their lines ask for them, or if all are to have them.

        A run at its end and `penstock batch export` write in turn, and each reads the journal in its own: the last
        one to write has read all that the others had.
        """
        damaged: list[int] = []
        with (
            self._turn() as folder,
            KeptAnswers(self.journal) as kept,
            _replacing((self.output, self.errors), folder, kept.shape) as (answers, errors),
        ):
            for found in kept:
                is_shown = with_receipts or found.record.shows_receipt
                file = errors if found.record.has_failed else answers
                file.write(found.record, _shown(found, damaged) if is_shown else found.record.line)
                file.count += 1
                file.num_without_receipt += is_shown and not found.has_receipt
            errors.is_wanted = errors.count > 0
        return Written(answers.count, errors.count, answers.num_without_receipt, damaged)

    @contextmanager
    def _turn(self) -> Iterator[Path]:
        """Wait for others who write; yields a folder for what is unfinished."""
        lock = self.journal.with_name(self.journal.name + ".lock")
        try:
            file = open_locked(lock, is_patient=True)
        except OSError as error:
            raise _unwritten(self.output, error) from error
        try:
            with self._folder(file) as folder:
                yield folder
        except OSError as error:
            raise _unwritten(self.output, error) from error
        finally:
            if not os.fstat(file).st_size:  # else it is somebody's
                remove_locked(file, lock)
            os.close(file)

    @contextmanager
    def _folder(self, lock: int) -> Iterator[Path]:
        name, parent = self.output.name + PARTIAL, self.output.parent
        if os.fstat(lock).st_uid != os.geteuid():  # a file system where nothing can be known as ours
            yield parent
            return
        for left in own_folders(parent, name, _UNFINISHED):  # of a process that was killed, for it is our turn
            remove_own(left, _UNFINISHED)
        folder = own_folder(parent, name, _UNFINISHED)
        try:
            yield folder
        finally:
            remove_own(folder, _UNFINISHED)

    def vector_width(self) -> int:
        """How many numbers a vector of this job has; 0 if there is none yet."""
        with KeptAnswers(self.journal) as kept:
            return 0 if (shape := kept.shape) is None else shape[1]

    def line_digests(self) -> "array[int]":
        """The digest of each row's line when it was answered; 0 if it wasn't."""
        return by_row(self.journal, lambda found, record: record.line_digest)


def _shown(answer: KeptAnswer, damaged: list[int]) -> bytes:
    """An answer's line with its receipt, which one that is damaged doesn't get."""
    try:
        return answer.line_with_receipt()
    except RequestError:
        damaged.append(answer.record.row + 1)
        return answer.record.line


class _NewFile:
    """A file in a folder of its own, until it takes its name."""

    write: Write

    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        try:
            self._path, self._descriptor = new_file(target, folder=folder)
        except OSError as error:
            raise _unwritten(target, error) from error
        self._file = open(self._descriptor, "wb", buffering=1 << 20)
        self.count = self.num_without_receipt = 0  # of lines
        self.is_wanted = True

    def __enter__(self) -> "_NewFile":
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # of what is left to write after a failure
            self._file.close()
        self._path.unlink(missing_ok=True)

    @contextmanager
    def written(self, shape: tuple[int, int] | None) -> Iterator[Write]:
        """Takes records and their lines; of vectors in this shape, if there is one."""
        if shape is None:
            with sink_of(self._target, self._file) as sink:
                yield lambda record, line: sink.write(line)
            return
        from .formats.vectors import Shape, VectorRow, vectors_of  # few jobs need it

        with vectors_of(self._target, self._file, Shape(*shape)) as write:
            yield lambda record, line: write(VectorRow(record.row, line, record.vector))

    def sync(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unwritten(self._target, error) from error

    def take_name(self) -> None:
        try:
            if self.is_wanted:
                take_name(self._path, self._descriptor, self._target)
            else:
                self._target.unlink(missing_ok=True)  # of lines that have been answered since
            sync_folder(self._target.parent)
        except OSError as error:
            raise _unwritten(self._target, error) from error


@contextmanager
def _replacing(targets: Sequence[Path], folder: Path, shape: tuple[int, int] | None) -> Iterator[list[_NewFile]]:
    """Files in the folder that take these names at the end: once all are on the disk, so that a full one leaves the
    earlier files as they are. The first one has vectors if they have a shape."""
    with ExitStack() as files:
        several = [files.enter_context(_NewFile(target, folder)) for target in targets]
        with ExitStack() as sinks:
            for number, each in enumerate(several):
                each.write = sinks.enter_context(each.written(shape if number == 0 else None))
            yield several
        for each in several:
            each.sync()
        for each in several:
            each.take_name()


def _unwritten(target: Path, error: OSError) -> PenstockError:
    return PenstockError(
        f"{target} cannot be written: {error.strerror}. All answers are in the journal: once that is mended, run "
        "the same command again."
    )
