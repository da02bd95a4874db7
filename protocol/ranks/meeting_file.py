"""The file by which ranks find one another (torch's `FileStore`), with the same records on all machines of a tree.

Ranks append whole records under an exclusive lock, so whatever one machine's ranks append can be appended to the files
of the others.
"""

import fcntl
import os
from pathlib import Path


class MeetingFile:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._position = 0  # the other machines have everything before it

    def appended(self) -> bytes:
        """Return what this machine's ranks have appended since the last call."""
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            return self._news()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def append(self, records: bytes) -> bytes:
        """Append another machine's records; returns what this machine's ranks had appended first."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            news = self._news()
            while records:
                written = os.pwrite(self._file, records, self._position)
                self._position, records = self._position + written, records[written:]
            return news
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def everything(self) -> bytes:
        """Return all records that the other machines have, or are being sent."""
        return os.pread(self._file, self._position, 0)

    def close(self) -> None:
        os.close(self._file)

    def _news(self) -> bytes:
        end = os.fstat(self._file).st_size
        news = os.pread(self._file, end - self._position, self._position)
        self._position += len(news)
        return news
