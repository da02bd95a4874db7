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

from ...protocol.files.own_folder import make_own

_SHARE = 0.25  # of what is free or taken by this folder
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


def write_kept(path: Path, size: int, fill: Callable[[int], None]) -> bool:
    """Make the file by `fill`; False if another process is at it. It appears under its name when it is complete."""
    make_own(path.parent, WHAT)
    unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
    file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not _taken(file, unfinished):
            return False
        try:
            os.ftruncate(file, 0)
            _make_room(path.parent, size)
            fill(file)
            os.rename(unfinished, path)
        except BaseException:
            remove_kept(unfinished)
            raise
        return True
    finally:
        os.close(file)


def _taken(file: int, path: Path) -> bool:
    """Lock it for this process alone. It may have got another name, or none, before it was locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_ino == path.stat().st_ino
    except OSError:
        return False


def _make_room(folder: Path, size: int) -> None:
    """Remove what was abandoned, and what was not used for the longest time until `size` bytes more are within bounds.

    What doesn't have such a name as keys have was put there by somebody else. Raises `NoRoom` where there is no room.
    """
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    for path in found:
        if path.suffix == _UNFINISHED:
            _remove_unused(path)
    kept = sorted((path for path in found if path.suffix != _UNFINISHED), key=_last_use)
    taken = sum(map(_size, kept))
    limit = int(_SHARE * (shutil.disk_usage(folder).free + taken))
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
