"""JSON that is written while it is sent: a struct whose long lists are encoded a piece at a time.

A list that has been put off stands in the struct as a mark, which JSON cannot hold otherwise. Nothing of it is made
before it is its turn. Knows nothing of what the lists hold.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

import msgspec

# About so many bytes at once: half a millisecond, in which nothing else runs.
PIECE_BYTES = 16 << 10
_MARK = b"\0"

Item = TypeVar("Item")


class LongJson:
    def __init__(self) -> None:
        self._lists: list[Iterable[Any]] = []

    def put_off(self, items: Iterable[Item]) -> list[Item]:
        """What stands for the list of these items in the struct; they may hold such lists themselves."""
        self._lists.append(items)
        mark = msgspec.Raw(_MARK + str(len(self._lists) - 1).encode() + _MARK)
        return cast("list[Item]", mark)  # which is what its reader finds

    @property
    def is_long(self) -> bool:
        """A list was put off."""
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
