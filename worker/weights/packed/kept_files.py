"""A bounded cache folder that processes share; the least recently used files are removed first.

The folder has a marker file; in folders without it nothing is written or removed.

Users of a file hold a shared lock on it, its writer an exclusive lock; the system releases both when a process ends in
any way. So a locked file is in use, and an unlocked unfinished file was abandoned.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ....protocol.files.own_folder import make_own

SHARE = 0.25  # of the space that is free or used by this folder
# The same for a file that a model needs to run.
LARGEST_SHARE = 0.9
_UNFINISHED = ".writing"
_NAME = re.compile(rf"[0-9a-z]+({re.escape(_UNFINISHED)})?")
WHAT = "packed weights"  # named in the folder's marker


class NoRoom(Exception):
    """The file would exceed the share of the disk for data that can be made again."""


def open_kept(path: Path) -> int | None:
    """The file, locked against removal until it is closed; None if there is none."""
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            file = os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC)
        except PermissionError:
            continue
        except FileNotFoundError:
            return None
        # Removed just now or not: what is open stays readable.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH)
            os.utime(path)  # most recently used, removed last
        return file
    return None


def remove_kept(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


class UnfinishedFile:
    """A file being written. It has a temporary name until it is complete."""

    def __init__(self, path: Path, unfinished: Path, file: int) -> None:
        self.path = path
        self.file = file
        self._unfinished = unfinished

    @classmethod
    def begin(cls, path: Path, size: int, share: float = SHARE, *, waits: bool = False) -> "UnfinishedFile | None":
        """Begin an empty file with room for `size` bytes; None if another process is writing it, or with `waits` if one
        has written it meanwhile. Raises `NoRoom`.
        """
        make_own(path.parent, WHAT)
        unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        file = _created(unfinished)
        while not _taken(file, unfinished, waits):
            os.close(file)
            if not waits or path.exists():
                return None
            file = _created(unfinished)
        if waits and path.exists():  # since the last check
            remove_kept(unfinished)
            os.close(file)
            return None
        try:
            os.ftruncate(file, 0)
            _make_room(path.parent, size, share)
        except BaseException:
            remove_kept(unfinished)  # while locked: afterwards another process may own it
            os.close(file)
            raise
        return cls(path, unfinished, file)

    def complete(self) -> None:
        """Give it its final name. It stays open, and locked against removal like any file in use."""
        os.rename(self._unfinished, self.path)
        fcntl.flock(self.file, fcntl.LOCK_SH)

    def forget(self) -> None:
        """Remove its name. It stays open, and waiting processes continue."""
        remove_kept(self._unfinished)
        fcntl.flock(self.file, fcntl.LOCK_UN)


def write_kept(path: Path, size: int, fill: Callable[[int], None]) -> bool:
    """Write the file with `fill`; False if another process is writing it."""
    unfinished = UnfinishedFile.begin(path, size)
    if unfinished is None:
        return False
    try:
        fill(unfinished.file)
        unfinished.complete()
    except BaseException:
        unfinished.forget()
        raise
    finally:
        os.close(unfinished.file)
    return True


def most_bytes(folder: Path, share: float) -> int:
    """The most bytes that may be written to the folder if nothing in it is in use."""
    return int(share * (shutil.disk_usage(folder).free + sum(map(_size, _kept_in(folder)))))


def _created(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _taken(file: int, path: Path, waits: bool) -> bool:
    """Lock it exclusively. It may have been renamed or removed before it was locked."""
    try:
        if waits:
            # A process that has completed the file holds a shared lock while using it, maybe for days.
            fcntl.flock(file, fcntl.LOCK_SH)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_ino == path.stat().st_ino
    except OSError:
        return False


def _make_room(folder: Path, size: int, share: float) -> None:
    """Remove abandoned files, then the least recently used, until `size` more bytes are within bounds.

    Files whose names aren't keys belong to somebody else. Raises `NoRoom` if that is not enough.
    """
    for path in folder.iterdir():
        if path.suffix == _UNFINISHED and _NAME.fullmatch(path.name):
            _remove_unused(path)
    kept = sorted(_kept_in(folder), key=_last_use)
    taken, limit = sum(map(_size, kept)), most_bytes(folder, share)
    if size > limit:
        raise NoRoom(f"{size:,} bytes are more than the {limit:,} that it may take of the disk")
    for path in kept:
        if taken + size <= limit:
            return
        length = _size(path)
        if _remove_unused(path):
            taken -= length
    if taken + size > limit:
        raise NoRoom(f"{taken:,} of {limit:,} bytes are in use, and {size:,} are wanted")


def _kept_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix != _UNFINISHED and _NAME.fullmatch(path.name)]


def _remove_unused(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    except OSError:
        return False
    finally:
        os.close(file)


def _last_use(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
