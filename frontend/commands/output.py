"""Where a command writes what it makes: a pipe or a device as it comes, a file so that nothing is lost.

What was under a file's name stays there until the new content is complete. Until then that gathers beside it, in a file
whose name ends with `.partial`; a run that ends early, however it does, leaves there what it had finished.
Knows nothing of what is written.
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...protocol.errors import PenstockError
from .. import logs

# What has been written may be lost with the machine for so long, and with the process not at all.
_SYNC_SECONDS = 1.0
_LONGEST_NAME = 240  # of the 255 bytes that file systems take
_MOST_LINKS = 40


class Stream:
    """Standard output, a pipe, a device: written as it comes."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    @property
    def file_status(self) -> os.stat_result | None:
        return os.fstat(self._descriptor)

    def write(self, text: str) -> None:
        with _in_words(self.name):
            _write(self._descriptor, text)


class Replacement:
    """A file that takes the place of another, or of none, when it is complete."""

    def __init__(self, target: Path) -> None:
        self.name = str(target)
        self.target = target
        self.partial = target  # until it is made
        self._file = -1
        self._length = 0
        self._count = 0
        self._synced = 0.0

    @property
    def file_status(self) -> os.stat_result | None:
        """Of what is to be replaced."""
        with suppress(FileNotFoundError):
            return os.stat(self.target)
        return None

    def __enter__(self) -> "Replacement":
        """Readable by nobody who could not read what it replaces."""
        older = self.file_status
        mode = 0o666 if older is None else older.st_mode & 0o777
        with _in_words(self.name):
            self.partial, self._file = _new_file(self.target, mode)
        return self

    def write(self, text: str) -> None:
        """All of it or nothing; as one answer."""
        if not text:
            return
        try:
            with _in_words(str(self.partial)):
                self._length += _write(self._file, text)
                self._sync()
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            raise
        self._count += 1

    def _sync(self) -> None:
        now = time.monotonic()
        if now - self._synced >= _SYNC_SECONDS:
            os.fdatasync(self._file)
            self._synced = now

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._replace()
            else:
                self._keep()
        finally:
            os.close(self._file)

    def _replace(self) -> None:
        try:
            self._like(self.file_status)
            os.fsync(self._file)
            os.replace(self.partial, self.target)
        except OSError as error:
            raise PenstockError(
                f"{self.target} could not be replaced ({error.strerror}); its new content is complete in "
                f"{self.partial}, and {self.target} is as it was."
            ) from error
        with suppress(OSError):  # some file systems can't; the name is there all the same
            folder = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _like(self, older: os.stat_result | None) -> None:
        if older is None:
            return
        mode = older.st_mode & 0o777
        with suppress(PermissionError):  # only root gives files away
            os.fchown(self._file, older.st_uid, -1)
        try:
            os.fchown(self._file, -1, older.st_gid)
        except PermissionError:  # it is for that group, and not for ours
            mode &= ~0o070
        os.fchmod(self._file, mode)

    def _keep(self) -> None:
        with suppress(OSError):
            if not self._count:
                self.partial.unlink()
                return
            os.fsync(self._file)
        state = "is as it was" if self.file_status is not None else "was not made"
        _say(
            f"penstock: the run was cut short. The {self._count:,} answers that it had finished are kept in "
            f"{self.partial}: move it to where you want it. {self.target} {state}."
        )


def output_to(name: str | None) -> Stream | Replacement:
    """None is standard output. Raises `OSError` for what cannot be written; nothing is changed yet."""
    if name is None:
        return Stream(1, "standard output")
    if (descriptor := _own_descriptor(name)) is not None:
        return Stream(os.dup(descriptor), name)
    if not os.path.basename(name):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    try:
        is_file = stat.S_ISREG(os.stat(name).st_mode)
    except FileNotFoundError:
        is_file = True
    else:
        if not os.access(name, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    if not is_file:
        return Stream(os.open(name, os.O_WRONLY), name)
    # What a symbolic link leads to is replaced, and the link stays.
    target = Path(os.path.realpath(name))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        reason = errno.EACCES if target.parent.is_dir() else errno.ENOENT
        raise OSError(reason, os.strerror(reason), str(target.parent))
    return Replacement(target)


def is_same_file(source: BinaryIO, output: Stream | Replacement) -> bool:
    """Whatever their names: reading it would be reading what was written. Terminals and pipes are read elsewhere."""
    read, written = os.fstat(source.fileno()), output.file_status
    is_kept = stat.S_ISREG(read.st_mode) or stat.S_ISBLK(read.st_mode)
    return is_kept and written is not None and os.path.samestat(read, written)


def _own_descriptor(name: str) -> int | None:
    """The number that names such as /dev/stdout and /dev/fd/3 stand for: opened anew, it would be written from its
    beginning."""
    path = name
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder == f"/proc/{os.getpid()}/fd" and last.isdecimal():
            return int(last)
        path = os.path.join(folder, last)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _new_file(target: Path, mode: int) -> tuple[Path, int]:
    """Beside the target, under a name that nobody has: an earlier run's is that run's."""
    base = target.with_name(os.fsdecode(os.fsencode(target.name)[:_LONGEST_NAME]) + ".partial")
    path, number = base, 1
    while True:
        try:
            made = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError:
            number += 1
            path = base.with_name(f"{base.name}.{number}")
            continue
        if number > 1:
            what = "is of another run, cut short or still going, and is left alone"
            _say(f"penstock: {base} {what}; this one gathers in {path}.")
        return made


def _write(descriptor: int, text: str) -> int:
    """How many bytes; what is no character in UTF-8 is written as the escape that JSON has for it."""
    content = text.encode(errors="backslashreplace")
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # a pipe that whoever shares it has set so
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
    return len(content)


@contextmanager
def _in_words(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads any more: no fault
        raise
    except OSError as error:
        raise PenstockError(f"{name} cannot be written: {error.strerror}.") from error


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed or full standard error must not cost answers
        logs.say(text, quiet=False)
