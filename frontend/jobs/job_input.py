"""The input of a job: a file of lines or a table (`formats/`), which a run reads from its beginning each time.

A first pass surveys it: digests of its bytes, the number of its rows, and that no `custom_id` occurs twice. Later
passes compare each block of the file with its digest before they use any of its lines, so no line is answered that the
survey has not seen. However many lines there are, only some bytes of each are in memory.
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
from ..rows.prompts import check_columns
from .formats.formats import CheckColumns, lines_of, require_format

_BLOCK = 1 << 20
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
    num_empty: int  # lines, which are no rows


class JobInput:
    def __init__(self, path: Path, check_columns: CheckColumns = check_columns) -> None:
        """Raises if it is no file that can be read."""
        self.path = path
        self._check_columns = check_columns
        try:
            status = os.stat(path)
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a file. A job reads its input again when it goes on, so give a file.")
        require_format(path)
        self._blocks: list[bytes] | None = None  # digests of the file's blocks, once it has been surveyed

    def survey(self) -> Survey:
        """Read the file; raises if a `custom_id` occurs twice."""
        digest, custom_ids, num_rows, num_lines = hashlib.sha256(), array("Q"), 0, 0
        self._blocks = None
        with self._open() as raw:
            blocks = []
            while block := raw.read(_BLOCK):
                digest.update(block)
                blocks.append(_digest_of_block(block))
        self._blocks = blocks
        for line in self.lines():
            num_rows, num_lines = num_rows + 1, line.number
            if (custom_id := _custom_id(line.line)) is not None:
                custom_ids.append(_digest(custom_id))
        if not num_rows:
            raise ConfigError(f"{self.path} is empty, so there is no prompt to answer. Write one a line.")
        self._refuse_twice(custom_ids)
        return Survey(digest.hexdigest(), num_rows, num_lines - num_rows)

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
            for number, line in enumerate(lines_of(self.path, raw, self._check_columns), start=1):
                if not isinstance(line, str) or line.strip():
                    yield InputLine(row, number, line)
                    row += 1
        except (EOFError, zlib.error) as error:
            raise PenstockError(f"{self.path} cannot be unpacked any further: {error}.") from error

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            file = open(self.path, "rb", buffering=0)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}.") from error
        surveyed = file if self._blocks is None else _SurveyedFile(file, self._blocks)
        with file, io.BufferedReader(surveyed, _BLOCK) as raw:
            yield raw

    def _refuse_twice(self, custom_ids: "array[int]") -> None:
        if not custom_ids:
            return
        import numpy  # slow

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


class _SurveyedFile(io.RawIOBase):
    """Reads a file, and raises where it isn't what it was when it was surveyed."""

    def __init__(self, file: io.FileIO, blocks: list[bytes]) -> None:
        self._file = file
        self._blocks = blocks
        self._offset = 0
        self._number, self._block = -1, b""  # the block that was read last

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: os.fstat(self._file.fileno()).st_size}
        self._offset = start[whence] + offset
        return self._offset

    def readinto(self, buffer: Any) -> int:
        number, start = divmod(self._offset, _BLOCK)
        if number != self._number:
            self._number, self._block = number, self._read(number)
        piece = self._block[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._offset += len(piece)
        return len(piece)

    def _read(self, number: int) -> bytes:
        block, file = b"", self._file.fileno()
        while piece := os.pread(file, _BLOCK - len(block), number * _BLOCK + len(block)):
            block += piece
        is_end = not block and number >= len(self._blocks)
        if not is_end and self._blocks[number : number + 1] != [_digest_of_block(block)]:
            raise ConfigError(
                f"{self._file.name} has been changed since this job began; nothing of the change was answered. "
                "Run the same command again."
            )
        return block


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


def _digest_of_block(block: bytes) -> bytes:
    return hashlib.blake2b(block, digest_size=16).digest()


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
