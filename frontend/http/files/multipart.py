"""Parses a form (multipart/form-data) while it arrives: parts with their names, and their content in pieces.

Nothing of a part's content is kept here but the few bytes that may be the beginning of the next boundary.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..answers.errors import ApiError

_MOST_PARTS = 16
_MOST_HEADER_BYTES = 8 << 10
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(r"content-disposition:\s*form-data\s*((?:;.*)?)", re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([\w*]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')
# What clients write for characters that would end a name.
_ESCAPED = {"%22": '"', "%0A": "\n", "%0D": "\r"}
_END = b"\r\n\r\n"


class PartHead(NamedTuple):
    name: str
    filename: str | None  # None: a plain field


# A part's head, a piece of the current part's content, or None at the end of a part.
FormEvent = PartHead | bytes | None


def boundary_of(content_type: str) -> bytes:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise ApiError(415, "A file comes as a form: Content-Type: multipart/form-data, with its boundary.")
    if (found := _BOUNDARY.search(content_type)) is None:
        raise ApiError(400, "The Content-Type of the form names no boundary of 1 to 70 characters.")
    return (found[1] or found[2]).encode("latin-1")


class FormParser:
    """Feed it the body's pieces in order, take the events, and call `end` after the last piece."""

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")  # so that the first boundary looks like all others
        self._step: Callable[[], Iterator[FormEvent]] = self._preamble
        self._num_parts = 0
        self._is_stuck = False  # more bytes are needed

    def feed(self, piece: bytes) -> Iterator[FormEvent]:
        self._buffer += piece
        self._is_stuck = False
        while not self._is_stuck:
            yield from self._step()

    def end(self) -> None:
        """Raise unless the form is complete."""
        if self._step != self._epilogue:
            raise ApiError(400, "The form ends before its last boundary.")

    # --- steps: each consumes a part of the buffer, or is stuck ------------------------------------------------------

    def _preamble(self) -> Iterator[FormEvent]:
        yield from self._until_mark(is_kept=False)

    def _content(self) -> Iterator[FormEvent]:
        yield from self._until_mark(is_kept=True)

    def _until_mark(self, *, is_kept: bool) -> Iterator[FormEvent]:
        end = self._buffer.find(self._mark)
        length = end if end >= 0 else max(0, len(self._buffer) - len(self._mark) + 1)
        piece = bytes(self._buffer[:length])
        del self._buffer[: length if end < 0 else length + len(self._mark)]
        self._is_stuck = end < 0
        if is_kept and piece:
            yield piece
        if end >= 0:
            self._step = self._after_mark
            if is_kept:
                yield None

    def _after_mark(self) -> Iterator[FormEvent]:
        if len(self._buffer) < 2:
            self._is_stuck = True
        elif self._buffer.startswith(b"--"):
            self._step = self._epilogue
        elif self._buffer.startswith(b"\r\n"):
            self._step = self._head
        else:
            raise ApiError(400, "A boundary of the form is followed by neither a line's end nor two hyphens.")
        yield from ()

    def _head(self) -> Iterator[FormEvent]:
        """The line's end before the headers is left in the buffer: a part without headers has only two of them."""
        end = self._buffer.find(_END)
        if (end if end >= 0 else len(self._buffer)) > _MOST_HEADER_BYTES:
            raise ApiError(400, f"The headers of a part of the form have more than {_MOST_HEADER_BYTES:,} bytes.")
        if end < 0:
            self._is_stuck = True
            return
        head = bytes(self._buffer[:end])
        del self._buffer[: end + len(_END)]
        self._num_parts += 1
        if self._num_parts > _MOST_PARTS:
            raise ApiError(400, f"The form has more than {_MOST_PARTS} parts; an upload has a file and its purpose.")
        yield _part_head(head)
        self._step = self._content

    def _epilogue(self) -> Iterator[FormEvent]:
        self._buffer.clear()
        self._is_stuck = True
        yield from ()


def _part_head(head: bytes) -> PartHead:
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError:
        raise ApiError(400, "The headers of a part of the form are not UTF-8.") from None
    found = next((match for line in lines if (match := _DISPOSITION.fullmatch(line))), None)
    given = {} if found is None else {each[1].lower(): each for each in _PARAMETER.finditer(found[1])}
    if "name" not in given:
        raise ApiError(400, "A part of the form has no name: Content-Disposition: form-data; name=…")
    return PartHead(_value(given["name"]), _value(given["filename"]) if "filename" in given else None)


def _value(found: re.Match[str]) -> str:
    value: str = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
    return re.sub("%22|%0A|%0D", lambda escape: _ESCAPED[escape[0]], value)
