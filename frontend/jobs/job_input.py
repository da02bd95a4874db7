"""The input of a job: a file of lines or a table (`formats/`), which a run reads from its beginning each time.

A first pass surveys it: a digest of its bytes, the number of its rows, and that no `custom_id` occurs twice. However
many lines there are, only some bytes of each are in memory.
"""

import hashlib
import io
import os
import stat
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ...protocol.errors import ConfigError, PenstockError
from ..rows.lines import Line
from .formats.formats import lines_of, require_format

_BUFFER = 1 << 20
_CUSTOM_ID = '"custom_id"'


class InputLine(NamedTuple):
    row: int  # number of the prompt, from 0: empty lines have none
    number: int  # of the line, from 1
    line: Line

    @property
    def digest(self) -> int:
        """Tells this line from others at its place in another file."""
        return _digest(self.line if isinstance(self.line, str) else str(self.line))


class Survey(NamedTuple):
    digest: str
    num_rows: int


class JobInput:
    def __init__(self, path: Path) -> None:
        """Raises if it is no file that can be read."""
        self.path = path
        try:
            status = os.stat(path)
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a file. A job reads its input again when it goes on, so give a file.")
        require_format(path)
        self._surveyed: tuple[int, ...] = ()  # what tells a file from one that has been changed

    def survey(self) -> Survey:
        """Read the file once; raises if a `custom_id` occurs twice."""
        digest, custom_ids, num_rows = hashlib.sha256(), array("Q"), 0
        with self._open(digest) as raw:
            for line in self._rows(raw):
                num_rows += 1
                if (custom_id := _custom_id(line.line)) is not None:
                    custom_ids.append(_digest(custom_id))
            while raw.read(_BUFFER):  # what follows the end of a compressed stream; all of a table
                pass
        if not num_rows:
            raise ConfigError(f"{self.path} is empty, so there is no prompt to answer. Write JSON, one prompt a line.")
        self._refuse_twice(custom_ids)
        return Survey(digest.hexdigest(), num_rows)

    def lines(self) -> Iterator[InputLine]:
        """The rows' lines, in order."""
        with self._open() as raw:
            yield from self._rows(raw)

    def models(self) -> set[str]:
        """The models that the bodies of the lines name; no more than a few."""
        names: set[str] = set()
        for line in self.lines():
            if len(names) > 3:
                break
            if isinstance(line.line, str) and _CUSTOM_ID in line.line:
                with suppress(msgspec.MsgspecError, UnicodeEncodeError):
                    names.add(_BODIES.decode(line.line).body.model)
        return names - {""}

    def _rows(self, raw: BinaryIO) -> Iterator[InputLine]:
        row = 0
        try:
            for number, line in enumerate(lines_of(self.path, raw), start=1):
                if not isinstance(line, str) or line.strip():
                    yield InputLine(row, number, line)
                    row += 1
        except (EOFError, zlib.error) as error:
            raise PenstockError(f"{self.path} cannot be unpacked any further: {error}.") from error

    @contextmanager
    def _open(self, digest: Any = None) -> Iterator[BinaryIO]:
        """The file's bytes, which `digest` gets to see."""
        try:
            file = open(self.path, "rb", buffering=0)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}.") from error
        identity = _identity(file)
        if digest is not None:
            self._surveyed = identity
        elif self._surveyed not in ((), identity):
            file.close()
            raise ConfigError(f"{self.path} has been changed since this job began. Run the same command again.")
        with file, io.BufferedReader(file if digest is None else _Digested(file, digest), _BUFFER) as raw:
            yield raw

    def _refuse_twice(self, custom_ids: "array[int]") -> None:
        import numpy  # only where there are such lines

        ordered = numpy.sort(numpy.frombuffer(custom_ids, numpy.uint64))
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if not twice:
            return
        first: dict[str, int] = {}
        for line in self.lines():
            custom_id = _custom_id(line.line)
            if custom_id is None or _digest(custom_id) not in twice:
                continue
            if (earlier := first.setdefault(custom_id, line.number)) != line.number:
                raise ConfigError(
                    f"{self.path} has the custom_id {custom_id!r} in line {earlier:,} and in line {line.number:,}, so "
                    "their answers could not be told apart. Give each line its own."
                )


def _identity(file: io.FileIO) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Digested(io.RawIOBase):
    """A file whose bytes are added to a digest as they are read."""

    def __init__(self, file: io.FileIO, digest: Any) -> None:
        self._file = file
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        return count


class _Named(msgspec.Struct):
    custom_id: str | None = None


class _Body(msgspec.Struct):
    model: str = ""


class _WithBody(msgspec.Struct):
    body: _Body


_NAMED = msgspec.json.Decoder(_Named)
_BODIES = msgspec.json.Decoder(_WithBody)


def _custom_id(line: Line) -> str | None:
    if not isinstance(line, str) or _CUSTOM_ID not in line:
        return None
    try:
        return _NAMED.decode(line).custom_id
    except (msgspec.MsgspecError, UnicodeEncodeError):  # its own answer will say so
        return None


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
