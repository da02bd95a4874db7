"""The file by which ranks find one another (torch's `FileStore`), kept alike on all machines of a tree.

Its writers append whole records under an exclusive lock, so what one machine's ranks have appended can be appended on
the others.
"""

import fcntl
import os
from pathlib import Path


class MeetingFile:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._position = 0  # everything before is known to the other machines

    def appended(self) -> bytes:
        """What this machine's ranks have appended since the last time."""
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            return self._news()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def append(self, records: bytes) -> bytes:
        """Append another machine's records; returns what this one's ranks have appended before."""
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
        """What all machines know."""
        return os.pread(self._file, self._position, 0)

    def close(self) -> None:
        os.close(self._file)

    def _news(self) -> bytes:
        end = os.fstat(self._file).st_size
        news = os.pread(self._file, end - self._position, self._position)
        self._position += len(news)
        return news
