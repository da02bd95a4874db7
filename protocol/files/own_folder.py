"""Folders and files that Penstock made itself, recognized by a mark. Nothing else is ever removed or cleared.

A folder's mark is its file `.penstock`, a file's mark its first lines; it says what the thing is. Anything with our
name but without a mark (somebody's checkout, a folder of an older version), and anything that is a link or another
user's, is left as it is, and another name is taken. Folders are inspected and cleared through descriptors that follow
no link, so anything that takes over a folder's name meanwhile is safe.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = ".penstock"
_EXPLANATION = "Penstock made this, and removes it and what lies in it when it has no more use for it."
_NAMES_TRIED = 9
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Don't block: something else of that name may be a pipe without a writer.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors from opening something that isn't our folder; the caller should see any other.
_NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def mark(what: str) -> bytes:
    """The content of a mark: what the thing is, and a sentence for anyone who finds it."""
    return f"penstock: {what}\n{_EXPLANATION}\n".encode()


def own_folder(parent: Path, name: str, what: str) -> Path:
    """`parent/name`, made if there is none. If that is not ours, `parent/name-2` and so on.

    Raises OSError if it cannot be made.
    """
    names = [name, *(f"{name}-{number}" for number in range(2, _NAMES_TRIED + 1))]
    for folder in (parent / name for name in names):
        if is_own(folder, what):
            with suppress(OSError):  # a new timestamp keeps cleaners of the temporary folder away
                os.utime(folder / MARK)
            return folder
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (parent / name for name in names):
        with suppress(FileExistsError):
            make_own(folder, what)
            return folder
    taken = f"{names[0]} and {names[1]} to {names[-1]} are there and not Penstock's"
    raise FileExistsError(errno.EEXIST, taken, str(parent))


def own_folders(parent: Path, name: str, what: str) -> list[Path]:
    """All folders that `own_folder` has made there."""
    names = [name, *(f"{name}-{number}" for number in range(2, _NAMES_TRIED + 1))]
    return [parent / each for each in names if is_own(parent / each, what)]


def make_own(folder: Path, what: str) -> None:
    """Make a folder of ours; raises FileExistsError if it exists and is not ours."""
    with suppress(FileExistsError):
        os.makedirs(folder, 0o700)
    with _opened(folder) as opened:
        if opened is not None and _is_blank(opened, what):
            written = _marked(opened, what, is_held=False)
            with suppress(OSError):  # on disk, so that the mark survives a crash of the machine
                os.fsync(written)
            os.close(written)
        if opened is None or not _carries(opened, what):  # by us, or by a process that was faster
            raise FileExistsError(errno.EEXIST, "it is there and not Penstock's", str(folder))


def is_own(folder: Path, what: str) -> bool:
    with _opened(folder) as opened:
        return opened is not None and _carries(opened, what)


def remove_own(folder: Path, what: str) -> bool:
    """Remove a folder and its content if it has this mark; True if it did."""
    with suppress(OSError), _opened(folder) as opened:
        if opened is not None and _carries(opened, what):
            _clear(opened)
            os.unlink(MARK, dir_fd=opened)  # last, so that a half-cleared folder is still ours
            if os.path.samestat(os.fstat(opened), os.lstat(folder)):
                os.rmdir(folder)
            return True
    return False


class HeldFolder:
    """A folder of ours that belongs to this process, by a lock on its mark.

    The kernel drops the lock when the process ends, however it ends, so a marked folder without a lock is abandoned.
    The mark is locked before anything is written to it, so a new folder can't be mistaken for an abandoned one.
    """

    def __init__(self, path: Path, what: str, mode: int = 0o700) -> None:
        """Raises FileExistsError if it is not ours, BlockingIOError if another process holds it."""
        self.path = path
        self._what = what
        with suppress(FileExistsError):
            os.mkdir(path, mode)
        with _opened(path) as opened:
            if opened is None or not (_carries(opened, what) or _is_blank(opened, what)):
                raise FileExistsError(errno.EEXIST, "it is there and not Penstock's", str(path))
            self._mark = _marked(opened, what, is_held=True)
            if not os.path.samestat(os.fstat(opened), os.lstat(path)):  # its owner has just renamed it
                os.close(self._mark)
                raise BlockingIOError(errno.EWOULDBLOCK, "another process has just made it", str(path))

    @classmethod
    def new(cls, parent: Path, prefix: str, what: str) -> "HeldFolder":
        """Make a folder with a unique name, after removing those that ended processes have left next to it."""
        remove_abandoned(parent, prefix, what)
        path = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        try:
            return cls(path, what)
        except OSError:  # a full disk: without its mark nobody would ever remove it
            with suppress(OSError):
                os.unlink(path / MARK)
            os.rmdir(path)
            raise

    def clear(self) -> None:
        with _opened(self.path) as opened:
            if opened is not None and _carries(opened, self._what):
                _clear(opened)

    def keep_as(self, target: Path) -> None:
        """Rename it and let it go: from now on it belongs to the caller and isn't ours to remove."""
        self.path.rename(target)
        os.unlink(target / MARK)
        self.let_go()

    def remove(self) -> None:
        """Safe to call twice."""
        if self._mark >= 0:
            remove_own(self.path, self._what)
        self.let_go()

    def let_go(self) -> None:
        """Leave it to whoever holds it next. Safe to call twice."""
        if self._mark >= 0:
            os.close(self._mark)
            self._mark = -1


def remove_abandoned(parent: Path, prefix: str, what: str) -> None:
    """Remove folders whose owners have ended."""
    with suppress(OSError):
        for name in sorted(name for name in os.listdir(parent) if name.startswith(prefix)):
            if _is_abandoned(parent / name, what):
                remove_own(parent / name, what)


# --- files ------------------------------------------------------------------------------------------------------------


def new_file(path: Path, what: str) -> None:
    """Make a file with nothing but its mark, to append to."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600)
    try:
        _write(file, mark(what))
    except OSError:
        os.unlink(path)  # without its mark nobody would ever remove it
        raise
    finally:
        os.close(file)


def is_own_file(path: Path, what: str) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | _FILE)
    except OSError as error:
        if error.errno in _NOT_OURS:
            return False
        raise
    try:
        return _is_own_file(file) and os.pread(file, len(mark(what)), 0) == mark(what)
    finally:
        os.close(file)


def lock_file(path: Path) -> int:
    """Open an empty file for locks. A link or a file with content is left untouched."""
    return os.open(path, os.O_RDWR | os.O_CREAT | _FILE, 0o600)


# --- through descriptors ----------------------------------------------------------------------------------------------


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """A descriptor of the folder itself; None for anything but this user's folder."""
    try:
        opened = os.open(folder, _FOLDER)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        yield None
        return
    try:
        yield opened if os.fstat(opened).st_uid == os.geteuid() else None
    finally:
        os.close(opened)


def _carries(folder: int, what: str) -> bool:
    return _mark_in(folder) == mark(what)


def _mark_in(folder: int) -> bytes | None:
    try:
        file = os.open(MARK, os.O_RDONLY | _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise
    try:
        return os.pread(file, 1024, 0) if _is_own_file(file) else None
    finally:
        os.close(file)


def _is_own_file(file: int) -> bool:
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _is_blank(folder: int, what: str) -> bool:
    """Whether it is empty, or has only a mark whose writer died before finishing it."""
    found = _mark_in(folder) if (names := os.listdir(folder)) == [MARK] else None
    return not names or (found is not None and mark(what).startswith(found))


def _marked(folder: int, what: str, *, is_held: bool) -> int:
    """Open the mark, or write it. Two processes may do so at once: both write the same, and neither truncates."""
    is_new = _mark_in(folder) is None
    file = os.open(MARK, os.O_RDWR | (os.O_CREAT if is_new else 0) | _FILE, 0o600, dir_fd=folder)
    try:
        if is_held:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(file, mark(what))
    except OSError:
        os.close(file)
        raise
    return file


def _write(file: int, content: bytes) -> None:
    if os.pwrite(file, content, 0) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_abandoned(folder: Path, what: str) -> bool:
    with _opened(folder) as opened:
        if opened is None or not _carries(opened, what):
            return False
        file = os.open(MARK, os.O_RDWR | _FILE, dir_fd=opened)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True


def _clear(folder: int) -> None:
    """Remove everything in the folder but its mark. Links are removed, not followed."""
    for name in os.listdir(folder):
        if name == MARK:
            continue
        if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
