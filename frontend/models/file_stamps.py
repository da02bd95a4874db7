"""Tells whether files have changed between two reads, by path, size, time of change and inode."""

from collections.abc import Iterable
from pathlib import Path

FileStamps = frozenset[tuple[str, int, int, int]]


def stamps_of(paths: Iterable[Path]) -> FileStamps:
    """The stamps of the files that are there."""
    return frozenset(_stamp(path) for path in paths if path.exists())


def _stamp(path: Path) -> tuple[str, int, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns, status.st_ino
