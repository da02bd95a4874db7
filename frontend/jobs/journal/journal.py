"""A job's journal: records that were appended to a file, and that survive any end of the process or the machine.

A frame is a mark, the length of its record, the length of the file that was synced when the frame was written, a
checksum, and the record in MessagePack. Records are committed together: at most `commit_seconds` of work are lost.
Recovery cuts off what a crash has left of an unfinished tail. If a damaged frame is followed by one that was written
after the damaged place had been synced, the disk has lost what it had promised to keep, and the journal is refused.

    [b"\\xf5PJ1"] [length: u32] [synced: u64] [CRC-32 of the fields before and the record: u32] [record]
"""

import errno
import os
import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.formats import JOURNAL
from ...file_replacement import sync_folder
from ..locked_file import open_locked, remove_locked

_FAMILY: Final = b"\xf5PJ"
_MARK: Final = _FAMILY + b"%d" % JOURNAL.version
_HEADER = struct.Struct("<4sIQI")
_FIELDS = struct.Struct("<4sIQ")  # that the checksum covers, with the record
_BUFFERED_BYTES = 1 << 20  # more are written at once, though not yet synced
LONGEST_RECORD = 1 << 31


class JournalInUseError(ConfigError):
    """Another run has the journal."""


class JournalFrame(NamedTuple):
    offset: int  # in the file
    end: int
    synced: int
    record: bytes


class Journal:
    """A journal that is open for appending; one process at a time has it."""

    def __init__(
        self, path: Path, file: int, length: int, commit_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._file = file
        self._length = length  # of whole records in the file
        self._synced = length
        self._buffer = bytearray()
        self._commit_seconds = commit_seconds
        self._clock = clock
        self._committed_at = clock()

    @classmethod
    def open(cls, path: Path, commit_seconds: float = 1.0) -> "Journal":
        """Open or create it, and cut off an unfinished tail. Raises if another process has it."""
        try:
            file = open_locked(path)
        except BlockingIOError:
            sentence = f"{path} belongs to a run of this job that is going on; wait for its end."
            raise JournalInUseError(sentence) from None
        except OSError as error:
            raise ConfigError(f"The journal {path} cannot be opened: {error.strerror}.") from error
        try:
            length, synced = _recovered(file, path)
            os.ftruncate(file, length)
            # A tail that was read may still be in memory alone. Pages that an earlier sync could not write count as
            # clean: no sync stores them unless they are written again.
            _write_again(file, synced, length)
            os.fsync(file)
            sync_folder(path.parent)
            os.lseek(file, length, os.SEEK_SET)
            return cls(path, file, length, commit_seconds)
        except OSError as error:
            os.close(file)
            raise _unwritten(path, error) from error
        except BaseException:
            os.close(file)
            raise

    @property
    def is_empty(self) -> bool:
        return not self._length and not self._buffer

    def append(self, record: bytes) -> None:
        """Append a record; it is safe once `commit` has returned."""
        if len(record) > LONGEST_RECORD:
            raise PenstockError(f"An answer of {len(record) >> 20:,} MiB is too long for a journal.")
        self._buffer += frame(record, self._synced)
        if len(self._buffer) >= _BUFFERED_BYTES:
            self._write()
        self.commit_if_due()

    @property
    def seconds_until_commit(self) -> float:
        return max(0.0, self._committed_at + self._commit_seconds - self._clock())

    def commit_if_due(self) -> None:
        if self.seconds_until_commit == 0:
            self.commit()

    def commit(self) -> None:
        """Bring all records to the disk."""
        self._write()
        if self._synced != self._length:
            try:
                os.fsync(self._file)
            except OSError as error:
                # Pages that could not be written count as clean from now on: nothing behind the last sync is certain.
                self._cut(self._synced)
                raise _unwritten(self.path, error) from error
            self._synced = self._length
        self._committed_at = self._clock()

    def records(self) -> Iterator[JournalFrame]:
        """All records so far, in their order."""
        self._write()
        return read_journal(self.path, self._length)

    def close(self) -> None:
        """Commit, and let others have it."""
        if self._file >= 0:
            try:
                self.commit()
                if self.is_empty:  # of a job that was refused
                    remove_locked(self._file, self.path)
            finally:
                os.close(self._file)
                self._file = -1

    def _write(self) -> None:
        left = memoryview(bytes(self._buffer))
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self._cut(self._length)
            raise _unwritten(self.path, error) from error
        self._length += len(self._buffer)
        self._buffer.clear()

    def _cut(self, length: int) -> None:
        """Leave whole records alone, as far as that is possible; recovery cuts off the rest."""
        self._buffer.clear()
        self._length = length
        with suppress(OSError):
            os.ftruncate(self._file, length)
            os.lseek(self._file, length, os.SEEK_SET)


def frame(record: bytes, synced: int) -> bytes:
    fields = _FIELDS.pack(_MARK, len(record), synced)
    checksum = zlib.crc32(record, zlib.crc32(fields))
    return fields + struct.pack("<I", checksum) + record


def read_journal(path: Path, length: int | None = None) -> Iterator[JournalFrame]:
    """The whole records of a journal, which another process may be writing or cutting. Raises at their end if the file
    is no journal, or lost records that had been synced."""
    end = 0
    with open(path, "rb", buffering=_BUFFERED_BYTES) as file:
        length = os.fstat(file.fileno()).st_size if length is None else length
        for found in _frames(file, length):
            yield found
            end = found.end
        _refuse_damage(file.fileno(), path, end, length)


def record_at(file: BinaryIO, offset: int) -> bytes:
    """The record at an offset that a reader of this journal has found; raises if it has been cut off since."""
    file.seek(offset)
    if (found := _next_frame(file, offset, offset + LONGEST_RECORD)) is None:
        raise PenstockError(f"{file.name} was cut while it was read: its disk is full, or fails. Try again.")
    return found.record


def is_open_elsewhere(path: Path) -> bool:
    """Whether a process is working on this journal."""
    try:
        inode = os.stat(path).st_ino
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    # Layered file systems report another device than the kernel's list has.
    return any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())


def _frames(file: BinaryIO, length: int) -> Iterator[JournalFrame]:
    """The frames from the file's beginning to the first that isn't whole."""
    offset = 0
    while (found := _next_frame(file, offset, length)) is not None:
        yield found
        offset = found.end


def _next_frame(file: BinaryIO, offset: int, length: int) -> JournalFrame | None:
    """The frame at the file's position, which is this offset; None if it isn't whole within this length."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    mark, num_bytes, synced, checksum = _HEADER.unpack(header)
    end = offset + _HEADER.size + num_bytes
    if mark != _MARK or end > length:
        return None
    record = file.read(num_bytes)
    is_whole = len(record) == num_bytes and zlib.crc32(record, zlib.crc32(header[: _FIELDS.size])) == checksum
    return JournalFrame(offset, end, synced, record) if is_whole else None


def _recovered(file: int, path: Path) -> tuple[int, int]:
    """The length of the whole records, and how much of it is certainly on the disk; raises if the file is no journal,
    or lost records that had been synced."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not the journal of a job. Move it away, or give another output.")
    length = synced = 0
    with open(file, "rb", buffering=_BUFFERED_BYTES, closefd=False) as content:
        for found in _frames(content, status.st_size):
            length, synced = found.end, found.synced
    _refuse_damage(file, path, length, status.st_size)
    return length, synced


def _write_again(file: int, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(file, os.pread(file, min(_BUFFERED_BYTES, end - start), start), start)


def _refuse_damage(file: int, path: Path, place: int, length: int) -> None:
    """Raise if what follows the whole records, which end at this place, is not just an unfinished tail."""
    mark = b"" if place else os.pread(file, len(_MARK), 0)
    other = mark.removeprefix(_FAMILY)
    if len(mark) == len(_MARK) and mark != _MARK and other != mark and other.isalnum():
        raise ConfigError(f"{path}: {JOURNAL.refusal(other.decode())}")
    if not place and not _MARK.startswith(mark.rstrip(b"\0")):
        raise ConfigError(f"{path} is not the journal of a job. Move it away, or give another output.")
    if place < length and (later := _synced_later(file, place, length)) is not None:
        raise PenstockError(
            f"The journal {path} is damaged at byte {place:,}, and whole again from byte {later:,}: the disk has "
            "lost what it had stored. Restore the file, or move it away to start again."
        )


def _synced_later(file: int, place: int, length: int) -> int | None:
    """Where the first frame behind a place is that was written once the place had been synced."""
    end = place
    with open(file, "rb", buffering=_BUFFERED_BYTES, closefd=False) as content:
        for at in _marks(file, place):
            content.seek(at)
            if at < end or (found := _next_frame(content, at, length)) is None:
                continue
            if at == place:  # the place has been cut, and written anew, since it was read
                return None
            if found.synced > place:
                return at
            end = found.end
    return None


def _marks(file: int, place: int) -> Iterator[int]:
    """Where the mark occurs from a place on. The file isn't mapped, since another process may cut it."""
    while len(block := os.pread(file, _BUFFERED_BYTES, place)) >= len(_MARK):
        at = block.find(_MARK)
        while at >= 0:
            yield place + at
            at = block.find(_MARK, at + 1)
        place += len(block) - len(_MARK) + 1


def _unwritten(path: Path, error: OSError) -> PenstockError:
    reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
    return PenstockError(
        f"The journal {path} cannot be written: {reason}. Once that is mended, run the same command again: the job "
        "continues from its last whole record."
    )
