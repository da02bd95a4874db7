"""Tells whether files have changed between two reads: by path, size, inode, device, and times of change.

The time of a file's content can be set back. That of its description can't, but a new name of the file counts as well.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FileStamp = tuple[str, int, int, int, int, int]
FileStamps = frozenset[FileStamp]


def stamps_of(paths: Iterable[Path]) -> FileStamps:
    """The stamps of the files that are there."""
    found = set()
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            found.add(stamp_of(path))
    return frozenset(found)


def stamp_of(path: Path) -> FileStamp:
    status = os.stat(path)
    times = status.st_mtime_ns, status.st_ctime_ns
    return str(path), status.st_size, *times, status.st_ino, status.st_dev
