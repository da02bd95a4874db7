"""Writes a new file next to the one it will replace, which stays unchanged until the new one takes its name.

`write_whole` does all of it for content that is there as a whole.
"""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"
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
    return target.with_name(os.fsdecode(os.fsencode(target.name)[:_LONGEST_NAME]) + PARTIAL)


def partial_names(target: Path) -> Iterator[Path]:
    """The usual name and further ones, for when other processes have taken it."""
    base = partial_name(target)
    yield base
    yield from (base.with_name(f"{base.name}.{number}") for number in itertools.count(2))


def new_file(target: Path, mode: int = 0o666, folder: Path | None = None) -> tuple[Path, int]:
    """Open a file under an unused name, next to the target or in a folder; only those who could read the old file may
    read it. `mode` is that of a file that replaces none."""
    older = status_of(target)
    mode = mode if older is None else older.st_mode & 0o777
    names = partial_names(target if folder is None else folder / target.name)
    while True:
        path = next(names)
        with suppress(FileExistsError):
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def take_name(path: Path, file: int, target: Path) -> None:
    """Rename with the permissions of the old file; raises OSError if that fails."""
    _like(file, status_of(target))
    os.replace(path, target)


def write_whole(target: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file, by default for its user alone, that is on the disk with all its content before it has its name."""
    path, file = new_file(target, mode)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
        take_name(path, file, target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    with suppress(OSError):  # some file systems can't; the name exists nevertheless
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
