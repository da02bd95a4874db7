"""Writes a command's answers: to a pipe or a device at once, to a file so that nothing is lost.

A file keeps its old content until the new content is complete. Until then answers are collected next to it, in a file
whose name ends with `.partial`; a run that ends early, for whatever reason, leaves its finished answers there.
"""

import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ....protocol.errors import PenstockError
from ...console import logs
from ...file_replacement import (
    new_file,
    partial_name,
    partial_names,
    replaceable,
    status_of,
    sync_folder,
    take_name,
)

# A crash of the machine may lose this many seconds of answers; the end of the process loses none.
_SYNC_SECONDS = 1.0
_MOST_LINKS = 40


class OutputStream:
    """Standard output, a pipe or a device: answers are written at once."""

    def __init__(self, descriptor: int, name: str, *, is_standard: bool = False) -> None:
        self.name = name
        self.is_standard = is_standard  # the same as Python's standard output
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
    """A file that replaces another, or none, once it is complete. It is created with the first answer."""

    def __init__(self, target: Path) -> None:
        self.name = str(target)
        self.target = target
        self.partial = target  # until it has a name
        self._file = -1
        self._length = 0
        self._count = 0
        self._synced = 0.0

    @property
    def file_status(self) -> os.stat_result | None:
        """The status of the file to be replaced."""
        return status_of(self.target)

    def __enter__(self) -> "OutputFile":
        if self._file < 0:
            self.partial = next(path for path in partial_names(self.target) if not os.path.lexists(path))
            if self.partial != (base := partial_name(self.target)):
                what = "is of another run, cut short or still going, and is left alone"
                _say(f"penstock: {base} {what}; this one gathers in {self.partial}.")
        return self

    def write(self, text: str) -> None:
        """Write all of it or nothing, as one answer."""
        if not text:
            return
        self._make()
        try:
            with _in_words(str(self.partial)):
                # Both at once: a signal that ends the run may come between any two lines.
                self._length, self._count = self._length + _write(self._file, text), self._count + 1
                self._sync()
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            raise

    def _make(self) -> None:
        if self._file < 0:
            with _in_words(self.name):
                self.partial, self._file = new_file(self.target)

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
        sync_folder(self.target.parent)

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


def output_to(name: str | None) -> OutputStream | OutputFile:
    """The output with this name; None is standard output. Raises `OSError` if it cannot be written; nothing is
    changed yet."""
    if name is None:
        return OutputStream(1, "standard output", is_standard=True)
    if (descriptor := _own_descriptor(name)) is not None:
        return OutputStream(os.dup(descriptor), name)
    target = replaceable(name)
    return OutputStream(os.open(name, os.O_WRONLY), name) if target is None else OutputFile(target)


def is_same_file(source: BinaryIO, output: OutputStream | OutputFile) -> bool:
    """Whether both are the same file, which would make the command read its own output. Terminals and pipes never
    are."""
    read, written = os.fstat(source.fileno()), output.file_status
    is_kept = stat.S_ISREG(read.st_mode) or stat.S_ISBLK(read.st_mode)
    return is_kept and written is not None and os.path.samestat(read, written)


def _own_descriptor(name: str) -> int | None:
    """The descriptor number of names such as /dev/stdout and /dev/fd/3: opened anew, the file would be written from
    its start."""
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
    """Write text and return the number of bytes; a character without UTF-8 form is written as its JSON escape."""
    content = text.encode(errors="backslashreplace")
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # a pipe that another process has set to non-blocking
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
    return len(content)


@contextmanager
def _in_words(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads any more: not an error
        raise
    except OSError as error:
        raise PenstockError(f"{name} cannot be written: {error.strerror}.") from error


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # a closed or full standard error must not cost answers
        logs.say(text, quiet=False)
