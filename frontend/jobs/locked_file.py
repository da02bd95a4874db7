"""Files that one process at a time has, by a lock that the kernel drops when the process ends, however it ends.

Whoever has the lock may remove the file, so one that has been opened counts only if it still has its name once it is
locked.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP)  # errors of a file system that has none


def open_locked(path: Path, *, is_patient: bool = False) -> int:
    """Open or create a file that only its user may read, and lock it. Raises BlockingIOError if another process has
    it, unless this one is patient."""
    while True:
        file = os.open(path, _FLAGS, 0o600)
        try:
            _lock(file, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def remove_locked(file: int, path: Path) -> None:
    """Remove a locked file, unless its name has become another file's."""
    if _has_name(file, path):
        path.unlink()


def _lock(file: int, operation: int) -> None:
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise


def _has_name(file: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.lstat(path))
    return False
