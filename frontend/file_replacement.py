"""Writes a new file next to the one it will replace, which stays unchanged until the new one takes its name."""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LONGEST_NAME = 240  # of the 255 bytes that file systems take


def replaceable(name: str) -> Path | None:
    """The file with that name, which may not exist yet; None for a pipe or device, which isn't replaced.

    A symbolic link's target is replaced, and the link is kept. Raises OSError if that is impossible.
    """
    if not os.path.basename(name):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    with suppress(FileNotFoundError):
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not os.access(name, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        if not stat.S_ISREG(mode):
            return None
    target = Path(os.path.realpath(name))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        reason = errno.EACCES if target.parent.is_dir() else errno.ENOENT
        raise OSError(reason, os.strerror(reason), str(target.parent))
    return target


def status_of(target: Path) -> os.stat_result | None:
    """The status of the file; None if it doesn't exist."""
    with suppress(FileNotFoundError):
        return os.stat(target)
    return None


def partial_name(target: Path) -> Path:
    """The usual name of the unfinished file."""
    return target.with_name(os.fsdecode(os.fsencode(target.name)[:_LONGEST_NAME]) + ".partial")


def partial_names(target: Path) -> Iterator[Path]:
    """The usual name and further ones, for when other processes have taken it."""
    base = partial_name(target)
    yield base
    yield from (base.with_name(f"{base.name}.{number}") for number in itertools.count(2))


def new_file(target: Path) -> tuple[Path, int]:
    """Open a file under an unused name; only those who could read the old file may read it."""
    older = status_of(target)
    mode = 0o666 if older is None else older.st_mode & 0o777
    names = partial_names(target)
    while True:
        path = next(names)
        with suppress(FileExistsError):
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def take_name(path: Path, file: int, target: Path) -> None:
    """Rename with the permissions of the old file; raises OSError if that fails."""
    _like(file, status_of(target))
    os.replace(path, target)


def _like(file: int, older: os.stat_result | None) -> None:
    if older is None:
        return
    mode = older.st_mode & 0o777
    with suppress(PermissionError):  # only root gives files away
        os.fchown(file, older.st_uid, -1)
    try:
        os.fchown(file, -1, older.st_gid)
    except PermissionError:  # it belongs to a group that isn't ours
        mode &= ~0o070
    os.fchmod(file, mode)
