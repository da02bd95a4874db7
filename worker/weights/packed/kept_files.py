"""A bounded cache folder that processes share; the least recently used files are removed first.

The folder carries our mark; in any other nothing is written or removed.

Whoever uses a file holds a shared lock on it, whoever writes one an exclusive lock; the system drops both when a
process ends, however it ends. So what is locked is in use, and an unlocked unfinished file was abandoned.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ....protocol.files.own_folder import make_own

SHARE = 0.25  # of what is free or taken by this folder
# The same for a file without which a model can't run: it is asked for, and no convenience.
LARGEST_SHARE = 0.9
_UNFINISHED = ".writing"
_NAME = re.compile(rf"[0-9a-z]+({re.escape(_UNFINISHED)})?")
WHAT = "packed weights"  # the folder's mark


class NoRoom(Exception):
    """The file would take more of the disk than is right for something that can be made again."""


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
            os.utime(path)  # used last, removed last
        return file
    return None


def remove_kept(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


class UnfinishedFile:
    """A file that is being made. It appears under its name when it is complete, and has another one until then."""

    def __init__(self, path: Path, unfinished: Path, file: int) -> None:
        self.path = path
        self.file = file
        self._unfinished = unfinished

    @classmethod
    def begin(cls, path: Path, size: int, share: float = SHARE, *, waits: bool = False) -> "UnfinishedFile | None":
        """An empty one, with room for `size` bytes; None if another process is at it, or with `waits` if one has made
        it meanwhile. Raises `NoRoom`.
        """
        make_own(path.parent, WHAT)
        unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        file = _created(unfinished)
        while not _taken(file, unfinished, waits):
            os.close(file)
            if not waits or path.exists():
                return None
            file = _created(unfinished)
        if waits and path.exists():  # since it was looked for
            remove_kept(unfinished)
            os.close(file)
            return None
        try:
            os.ftruncate(file, 0)
            _make_room(path.parent, size, share)
        except BaseException:
            remove_kept(unfinished)  # before it is unlocked, for then it may be another process's
            os.close(file)
            raise
        return cls(path, unfinished, file)

    def complete(self) -> None:
        """Give it its name. It stays open, and locked against removal as one that is in use."""
        os.rename(self._unfinished, self.path)
        fcntl.flock(self.file, fcntl.LOCK_SH)

    def forget(self) -> None:
        """Leave no name of it behind. It stays open, and who waits for it goes on."""
        remove_kept(self._unfinished)
        fcntl.flock(self.file, fcntl.LOCK_UN)


def write_kept(path: Path, size: int, fill: Callable[[int], None]) -> bool:
    """Make the file by `fill`; False if another process is at it."""
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
    """What may be written to the folder at most, if nothing in it is in use."""
    return int(share * (shutil.disk_usage(folder).free + sum(map(_size, _kept_in(folder)))))


def _created(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _taken(file: int, path: Path, waits: bool) -> bool:
    """Lock it for this process alone. It may have got another name, or none, before it was locked."""
    try:
        if waits:
            # Whoever has completed it shares it as long as it is used, which may be for days.
            fcntl.flock(file, fcntl.LOCK_SH)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_ino == path.stat().st_ino
    except OSError:
        return False


def _make_room(folder: Path, size: int, share: float) -> None:
    """Remove what was abandoned, and what was not used for the longest time until `size` bytes more are within bounds.

    What doesn't have such a name as keys have was put there by somebody else. Raises `NoRoom` where there is no room.
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
