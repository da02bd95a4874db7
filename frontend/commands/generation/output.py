"""Where a command writes its answers: to a pipe or a device as they come, to a file so that nothing is lost.

What was under a file's name stays there until the new content is complete. Until then that gathers beside it, in a file
whose name ends with `.partial`; a run that ends early, however it does, leaves there what it had finished.
"""

import fcntl
import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ....protocol.errors import PenstockError
from ...console import logs
from ...file_replacement import new_file, partial_name, partial_names, replaceable, status_of, take_name

# What has been written may be lost with the machine for so long, and with the process not at all.
_SYNC_SECONDS = 1.0
_MOST_LINKS = 40


class OutputStream:
    """Standard output, a pipe, a device: written as it comes."""

    def __init__(self, descriptor: int, name: str, *, is_standard: bool = False) -> None:
        self.name = name
        self.is_standard = is_standard  # it is what Python knows as standard output
        self._descriptor = descriptor

    def __enter__(self) -> "OutputStream":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    @property
    def file_status(self) -> os.stat_result | None:
        return os.fstat(self._descriptor)

    def write(self, text: str) -> None:
        with _in_words(self.name):
            _write(self._descriptor, text)


class OutputFile:
    """A file that takes the place of another, or of none, when it is complete. It is made with the first answer."""

    def __init__(self, target: Path) -> None:
        self.name = str(target)
        self.target = target
        self.partial = target  # until it has a name
        self._file = -1
        self._length = 0
        self._count = 0
        self._synced = 0.0
        self.advice = ""  # for who finds it cut short

    @property
    def file_status(self) -> os.stat_result | None:
        """Of what is to be replaced."""
        return status_of(self.target)

    def __enter__(self) -> "OutputFile":
        if self._file < 0:
            self.partial = next(path for path in partial_names(self.target) if not os.path.lexists(path))
            if self.partial != (base := partial_name(self.target)):
                what = "is of another run, cut short or still going, and is left alone"
                _say(f"penstock: {base} {what}; this one gathers in {self.partial}.")
        return self

    def resume(self, take: Callable[[bytes], None]) -> bool:
        """Go on in the file of a run that was cut short, where there is one; `take` is told its whole lines."""
        partial = partial_name(self.target)
        if not os.path.lexists(partial):
            return False
        with _in_words(str(partial)):
            # Opening waits for nobody at the other end of a pipe, and cuts no file that a link leads to.
            file = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        self.partial, self._file = partial, file
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise PenstockError(f"{partial} is no file that a run has left. Move it away to begin anew.")
        if not _locked(file):
            raise PenstockError(f"{partial} is being written by a run that still goes on; wait for its end.")
        with _in_words(str(partial)), open(os.dup(file), "rb") as reader:
            for line in reader:
                if not line.endswith(b"\n"):  # cut in the middle
                    break
                take(line)
                self._count += 1
                self._length += len(line)
            os.ftruncate(file, self._length)
            os.lseek(file, self._length, os.SEEK_SET)
        return True

    def write(self, text: str) -> None:
        """All of it or nothing; as one answer."""
        if not text:
            return
        self._make()
        try:
            with _in_words(str(self.partial)):
                self._length += _write(self._file, text)
                self._sync()
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            raise
        self._count += 1

    def _make(self) -> None:
        if self._file < 0:
            with _in_words(self.name):
                self.partial, self._file = new_file(self.target)
            _locked(self._file)

    def _sync(self) -> None:
        now = time.monotonic()
        if now - self._synced >= _SYNC_SECONDS:
            os.fdatasync(self._file)
            self._synced = now

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._make()
                self._replace()
            elif self._file >= 0:
                self._keep()
        finally:
            if self._file >= 0:
                os.close(self._file)

    def _replace(self) -> None:
        try:
            os.fsync(self._file)
            take_name(self.partial, self._file, self.target)
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

    def _keep(self) -> None:
        with suppress(OSError):
            if not self._count:
                self.partial.unlink()
                return
            os.fsync(self._file)
        state = "is as it was" if self.file_status is not None else "was not made"
        _say(
            f"penstock: the run was cut short. The {self._count:,} answers that it had finished are kept in "
            f"{self.partial}: move it to where you want it{self.advice}. {self.target} {state}."
        )


def output_to(name: str | None) -> OutputStream | OutputFile:
    """None is standard output. Raises `OSError` for what cannot be written; nothing is changed yet."""
    if name is None:
        return OutputStream(1, "standard output", is_standard=True)
    if (descriptor := _own_descriptor(name)) is not None:
        return OutputStream(os.dup(descriptor), name)
    target = replaceable(name)
    return OutputStream(os.open(name, os.O_WRONLY), name) if target is None else OutputFile(target)


def is_same_file(source: BinaryIO, output: OutputStream | OutputFile) -> bool:
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


def _locked(file: int) -> bool:
    """Whether nobody else writes there; file systems without locks can't say."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed or full standard error must not cost answers
        logs.say(text, quiet=False)
