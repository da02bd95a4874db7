"""Reads the beginning of a file piece by piece, never beyond its end or a header's largest size.

Numbers and texts are read in sequence. A length that the file states is checked against the bytes that are left before
anything is read or kept. The file is not mapped: if it were truncated meanwhile, the process would die.
"""

import os
import struct

from .refusals import MalformedError

# Real headers have up to some 30 MB, nearly all of it the vocabulary.
MOST_BYTES = 128 << 20
_PIECE_BYTES = 1 << 20

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class CheckedBytes:
    """The bytes of a file from its start, and a position in them."""

    def __init__(self, file: int, size: int) -> None:
        self._file = file
        self.size = size  # of the whole file
        self._content = bytearray()
        self.position = 0

    def take(self, length: int) -> bytearray:
        """The next `count` bytes."""
        self._need(length)
        start = self.position
        self.position = start + length
        return self._content[start : self.position]

    def number(self, form: struct.Struct) -> int | float:
        self._need(form.size)
        found: int | float = form.unpack_from(self._content, self.position)[0]
        self.position += form.size
        return found

    def u32(self) -> int:
        return int(self.number(U32))

    def u64(self) -> int:
        return int(self.number(U64))

    def numbers(self, count: int, letter: str) -> list[int | float]:
        """`count` numbers of one type, given by its letter in `struct`."""
        size = struct.calcsize(f"<{letter}")
        self._need(count * size)
        found = struct.unpack_from(f"<{count}{letter}", self._content, self.position)
        self.position += count * size
        return list(found)

    def text(self) -> str:
        """A text by a person or a tokenizer, which may not be valid UTF-8."""
        return self.take(self.u64()).decode(errors="replace")

    def texts(self, count: int) -> list[str]:
        """Read many texts at once: a vocabulary has several hundred thousand."""
        found: list[str] = []
        add, length_at = found.append, U64.unpack_from
        content, position = self._content, self.position
        for _ in range(count):
            if position + 8 > len(content):
                self.position = position
                self._need(8)
            start = position + 8
            end = start + length_at(content, position)[0]
            if end > len(content):
                self.position = start
                self._need(end - start)
            add(content[start:end].decode(errors="replace"))
            position = end
        self.position = position
        return found

    def require_room(self, count: int, least_bytes: int, what: str) -> None:
        """Raise unless `count` things of at least this many bytes each fit into the rest of a header."""
        if count * least_bytes > min(self.size, MOST_BYTES) - self.position:
            raise MalformedError(f"claims to have {count:,} {what}, for which it is too short")

    def _need(self, length: int) -> None:
        end = self.position + length
        if end <= len(self._content):
            return
        if end > self.size:
            raise MalformedError(f"ends after {self.size:,} bytes, amid its header")
        if end > MOST_BYTES:
            raise MalformedError(f"claims a header of more than {MOST_BYTES >> 20} MiB, which no model has")
        wanted = min(max(end, 2 * len(self._content), _PIECE_BYTES), self.size, MOST_BYTES)
        while len(self._content) < wanted:
            piece = os.pread(self._file, wanted - len(self._content), len(self._content))
            if not piece:
                raise MalformedError("was cut short while it was read")
            self._content += piece
