"""Folders and files that Penstock made itself, told by a mark in them: nothing else is ever removed or cleared.

A folder carries its mark in the file `.penstock`, a file in its first lines; either says what the thing is. What has
our name but no mark (somebody's checkout, a folder of an older version), or is a link or another user's, is left as it
is, and another name is taken. Folders are looked at and cleared through descriptors that follow no link, so that what
takes a folder's name meanwhile is safe as well. Knows nothing of what lies in them.
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
# Not blocking: something else of that name may be a pipe that nobody writes to.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What opening says of something that isn't a folder of ours; anything else is a fault that the caller should hear of.
_NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def mark(what: str) -> bytes:
    """What a mark says: what the thing is, and a sentence for who finds it."""
    return f"penstock: {what}\n{_EXPLANATION}\n".encode()


def own_folder(parent: Path, name: str, what: str) -> Path:
    """`parent/name`, which is made where there is none; where that is not ours, `parent/name-2` and so on.

    Raises OSError where it cannot be made.
    """
    names = [name, *(f"{name}-{number}" for number in range(2, _NAMES_TRIED + 1))]
    for folder in (parent / name for name in names):
        if is_own(folder, what):
            with suppress(OSError):  # who removes what is old from the temporary folder sees that it is in use
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
    """Those of ours that `own_folder` has ever made there."""
    names = [name, *(f"{name}-{number}" for number in range(2, _NAMES_TRIED + 1))]
    return [parent / each for each in names if is_own(parent / each, what)]


def make_own(folder: Path, what: str) -> None:
    """Raises FileExistsError where it is there and not ours."""
    with suppress(FileExistsError):
        os.makedirs(folder, 0o700)
    with _opened(folder) as opened:
        if opened is not None and _is_blank(opened, what):
            written = _marked(opened, what, is_held=False)
            with suppress(OSError):  # once for all, whatever happens to the machine
                os.fsync(written)
            os.close(written)
        if opened is None or not _carries(opened, what):  # by us, or by a process that was faster
            raise FileExistsError(errno.EEXIST, "it is there and not Penstock's", str(folder))


def is_own(folder: Path, what: str) -> bool:
    with _opened(folder) as opened:
        return opened is not None and _carries(opened, what)


def remove_own(folder: Path, what: str) -> bool:
    """Remove it with all that it holds if it carries that mark; whether it did."""
    with suppress(OSError), _opened(folder) as opened:
        if opened is not None and _carries(opened, what):
            _clear(opened)
            os.unlink(MARK, dir_fd=opened)  # last: what was cleared in part is still ours
            if os.path.samestat(os.fstat(opened), os.lstat(folder)):
                os.rmdir(folder)
            return True
    return False


class HeldFolder:
    """A folder of ours that belongs to this process, by a lock on its mark.

    The kernel lets go of the lock when the process ends, however it ends, so one that is marked and not locked is
    nobody's any more. The mark is locked before anything is written to it: none can be taken for abandoned before.
    """

    def __init__(self, path: Path, what: str, mode: int = 0o700) -> None:
        """Raises FileExistsError where it is not ours, BlockingIOError where another process holds it."""
        self.path = path
        self._what = what
        with suppress(FileExistsError):
            os.mkdir(path, mode)
        with _opened(path) as opened:
            if opened is None or not (_carries(opened, what) or _is_blank(opened, what)):
                raise FileExistsError(errno.EEXIST, "it is there and not Penstock's", str(path))
            self._mark = _marked(opened, what, is_held=True)
            if not os.path.samestat(os.fstat(opened), os.lstat(path)):  # its holder has just given it another name
                os.close(self._mark)
                raise BlockingIOError(errno.EWOULDBLOCK, "another process has just made it", str(path))

    @classmethod
    def new(cls, parent: Path, prefix: str, what: str) -> "HeldFolder":
        """With a name of its own. Those that ended processes have left beside it are removed first."""
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
        """Give it another name and let it go: it is the caller's from now on, and no longer ours to remove."""
        self.path.rename(target)
        os.unlink(target / MARK)
        self._let_go()

    def remove(self) -> None:
        """Safe to call twice."""
        if self._mark >= 0:
            remove_own(self.path, self._what)
            self._let_go()

    def _let_go(self) -> None:
        os.close(self._mark)
        self._mark = -1


def remove_abandoned(parent: Path, prefix: str, what: str) -> None:
    """Remove the folders that were held by processes which have ended."""
    with suppress(OSError):
        for name in sorted(name for name in os.listdir(parent) if name.startswith(prefix)):
            if _is_abandoned(parent / name, what):
                remove_own(parent / name, what)


# --- files ------------------------------------------------------------------------------------------------------------


def new_file(path: Path, what: str) -> None:
    """An empty one but for its mark, for whoever appends to it."""
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
    """A file of no content for locks; what a link of that name leads to is not touched, nor what a file holds."""
    return os.open(path, os.O_RDWR | os.O_CREAT | _FILE, 0o600)


# --- through descriptors ----------------------------------------------------------------------------------------------


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """A descriptor of the folder itself; None for whatever is not a folder of this user's."""
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
    """It holds nothing, or a mark that its writer did not live to finish."""
    found = _mark_in(folder) if (names := os.listdir(folder)) == [MARK] else None
    return not names or (found is not None and mark(what).startswith(found))


def _marked(folder: int, what: str, *, is_held: bool) -> int:
    """The mark, open. Two processes may write one at once: both write the same, and neither clears the file before."""
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
    """Remove all that it holds but its mark. Links are removed, not followed."""
    for name in os.listdir(folder):
        if name == MARK:
            continue
        if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
