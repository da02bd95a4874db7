"""Reads lines of a file or a pipe as text: UTF-8, ended by a line feed with or without a carriage return before it.

A line that cannot be read becomes a refusal, and reading goes on. Only one line is in memory at a time.
"""

import codecs
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ...protocol.errors import ConfigError, PenstockError, RequestError

# A context of a million tokens, with each of its characters written as an escape.
LONGEST_LINE = 64 << 20
_PIECE = 1 << 20

Line = str | RequestError


def read_lines(file: BinaryIO, name: str) -> Iterator[Line]:
    """Read the lines. `name` is the file's, for errors about the file as a whole."""
    for number, line in enumerate(lines_as_bytes(file, name), start=1):
        if number == 1:
            refuse_utf_16(line, name)
        if len(line) > LONGEST_LINE:
            yield RequestError(f"Line {number} has more than {LONGEST_LINE >> 20} MiB, which no prompt needs.")
            continue
        try:
            # Remove a byte order mark before any line: files that begin with one may be concatenated.
            yield line.removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            byte = line.removeprefix(codecs.BOM_UTF8)[error.start]
            yield RequestError(f"Line {number} is not UTF-8: byte {error.start + 1} of it is 0x{byte:02x}.")


def count_prompts(file: BinaryIO, *, is_json: bool) -> int | None:
    """Count the lines from here on that aren't empty; None if the lines can be read only once."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return None
    blank = None if is_json else b"\r\n"
    start, count, is_counted = file.tell(), 0, False
    while piece := file.read(_PIECE):
        first, *others = piece.split(b"\n")
        count += not is_counted and bool(first.strip(blank))
        is_counted |= bool(first.strip(blank))
        for line in others:
            is_counted = bool(line.strip(blank))
            count += is_counted
    file.seek(start)
    return count


def lines_as_bytes(file: BinaryIO, name: str) -> Iterator[bytes]:
    """As `bounded_lines`. Raises in a sentence if the file can't be read any further."""
    try:
        yield from bounded_lines(file)
    except OSError as error:
        raise PenstockError(f"{name} cannot be read any further: {error.strerror or error}.") from error


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines as bytes; for a line that is too long, only its beginning, which shows that."""
    while line := file.readline(LONGEST_LINE + 1):
        rest = line
        while not rest.endswith(b"\n") and len(rest) >= _PIECE:
            rest = file.readline(_PIECE)
        yield line


def refuse_utf_16(first: bytes, name: str) -> None:
    """UTF-16 text has zero bytes; a line that merely begins like its byte order mark has none."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in first:
        raise ConfigError(f"{name} is written in UTF-16, and UTF-8 is read here. Convert it: iconv -f UTF-16 -t UTF-8.")
