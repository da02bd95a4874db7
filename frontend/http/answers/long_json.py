"""Encodes a struct as JSON in pieces while it is sent, so that its long lists never exist as a whole.

A deferred list is represented in the struct by a mark that can't occur in JSON. Its items are made only when the
encoder reaches it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

import msgspec

# Bytes of a piece, about half a millisecond of encoding, during which nothing else runs.
PIECE_BYTES = 16 << 10
_MARK = b"\0"

Item = TypeVar("Item")


class LongJson:
    def __init__(self) -> None:
        self._lists: list[Iterable[Any]] = []

    def defer(self, items: Iterable[Item]) -> list[Item]:
        """A placeholder for the list of these items in the struct; items may hold deferred lists themselves."""
        self._lists.append(items)
        mark = msgspec.Raw(_MARK + str(len(self._lists) - 1).encode() + _MARK)
        return cast("list[Item]", mark)  # clients find a list there

    @property
    def is_long(self) -> bool:
        """Whether a list was deferred."""
        return bool(self._lists)

    def pieces(self, body: msgspec.Struct) -> Iterator[bytes]:
        """The struct's JSON."""
        piece = bytearray()
        for fragment in self._fragments(body):
            piece += fragment
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        if piece:
            yield bytes(piece)

    def _fragments(self, value: Any) -> Iterator[bytes]:
        encoded = msgspec.json.encode(value)
        if _MARK not in encoded:
            yield encoded
            return
        before, *rest = encoded.split(_MARK)
        yield before
        for number, after in zip(rest[::2], rest[1::2], strict=True):
            separator = b"["
            for item in self._lists[int(number)]:
                yield separator
                yield from self._fragments(item)
                separator = b","
            yield b"[]" if separator == b"[" else b"]"
            yield after
