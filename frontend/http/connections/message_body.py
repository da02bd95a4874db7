"""Finds where a request's body ends: after as many bytes as were announced, or with the last of its chunks.

`take` moves the body's bytes from the front of the received bytes; the rest belongs to the next request. Extensions of
chunks and the trailers after them are counted and dropped, and never treated as headers.
"""

import re
from collections.abc import Callable

from .request_head import BadRequest

# Even a tiny chunk takes about a microsecond. Within this limit, eight megabytes may arrive in chunks of 128 bytes.
MOST_CHUNKS = 2**16
MOST_SIZE_LINE = 256

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_EXTENSION = rb';%b(?:=(?:%b|"[\t\x20\x21\x23-\x5b\x5d-\x7e]*"))?' % (_NAME, _NAME)
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:%b)*" % _EXTENSION)
_TRAILER = re.compile(rb"%b:[\t\x20-\x7e\x80-\xff]*" % _NAME)


class SizedBody:
    """A body of Content-Length bytes; a request without that header has an empty body."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def take(self, buffer: bytearray) -> bytearray:
        piece = buffer[: self._left]
        del buffer[: len(piece)]
        self._left -= len(piece)
        return piece


class ChunkedBody:
    """Read step by step; a step returns where it ended, or None if it needs more bytes."""

    def __init__(self, most_trailer_bytes: int) -> None:
        self._most_trailer_bytes = most_trailer_bytes
        self._num_chunks = 0
        self._left = 0  # bytes of the chunk
        self._step: Callable[[bytearray, int, bytearray], int | None] | None = self._size_line

    @property
    def is_complete(self) -> bool:
        return self._step is None

    def take(self, buffer: bytearray) -> bytearray:
        """Take bytes of the body; raises `BadRequest`."""
        content, end = bytearray(), 0
        while self._step is not None and (reached := self._step(buffer, end, content)) is not None:
            end = reached
        del buffer[:end]
        return content

    def _size_line(self, buffer: bytearray, start: int, content: bytearray) -> int | None:
        end = buffer.find(b"\r\n", start, start + MOST_SIZE_LINE)
        if end < 0:
            if len(buffer) - start >= MOST_SIZE_LINE:
                raise BadRequest(400, f"A chunk's size and extensions take more than {MOST_SIZE_LINE} bytes.")
            return None
        size = _SIZE_LINE.fullmatch(buffer, start, end)
        if size is None:
            raise BadRequest(400, "A chunk begins with its size, a hexadecimal number, and then extensions.")
        self._num_chunks += 1
        if self._num_chunks > MOST_CHUNKS:
            raise BadRequest(400, f"The body comes in more than {MOST_CHUNKS:,} chunks; send larger ones.")
        self._left = int(size[1], 16)
        self._step = self._content if self._left else self._trailer
        return end + 2

    def _content(self, buffer: bytearray, start: int, content: bytearray) -> int | None:
        piece = buffer[start : start + self._left]
        content += piece
        self._left -= len(piece)
        if self._left == 0:
            self._step = self._content_end
        return start + len(piece) if piece else None

    def _content_end(self, buffer: bytearray, start: int, content: bytearray) -> int | None:
        end = buffer[start : start + 2]
        if not b"\r\n".startswith(end):
            raise BadRequest(400, "A chunk is longer than its size says.")
        if len(end) < 2:
            return None
        self._step = self._size_line
        return start + 2

    def _trailer(self, buffer: bytearray, start: int, content: bytearray) -> int | None:
        end = buffer.find(b"\r\n", start)
        line = buffer[start : end if end >= 0 else len(buffer)]
        if len(line) > self._most_trailer_bytes:
            raise BadRequest(431, "The trailers are longer than headers may be.")
        if end < 0:
            return None
        if line and not _TRAILER.fullmatch(line):
            raise BadRequest(400, "Trailers have the form of headers.")
        self._most_trailer_bytes -= len(line) + 2
        if not line:
            self._step = None
        return end + 2
