"""Pieces of a vocabulary: how long one may be, which begin at a position of a text, and the merges that make them."""

from collections.abc import Container, Iterable, Iterator
from typing import TypeVar

LONGEST_PIECE = 1024  # characters, or bytes


def check_length(piece: str | bytes, name: str) -> None:
    if len(piece) > LONGEST_PIECE:
        raise ValueError(f"{name} has the length {len(piece):,}, and none is longer than {LONGEST_PIECE:,}")


class PieceIndex:
    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = frozenset(pieces)
        lengths: dict[str, set[int]] = {}
        for piece in self._pieces:
            lengths.setdefault(piece[0], set()).add(len(piece))
        self._lengths = {first: sorted(found) for first, found in lengths.items()}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def ends(self, text: str, position: int) -> Iterator[int]:
        """Where the pieces end that begin at a position, the shortest first."""
        for length in self._lengths.get(text[position], ()):
            end = position + length
            if end > len(text):
                return
            if text[position:end] in self._pieces:
                yield end

    def longest_end(self, text: str, position: int) -> int:
        """0 where none begins at the position."""
        return max(self.ends(text, position), default=0)


Text = TypeVar("Text", str, bytes)


def merges(ordered: Iterable[Text], known: Container[Text]) -> Iterator[tuple[Text, Text]]:
    """The merges that the `tokenizers` library needs, for vocabularies that only order their pieces.

    SentencePiece and tiktoken merge whatever two neighbours make a `known` piece, the first piece of that order first.
    So each way to cut a piece into two others is a merge.
    """
    for piece in ordered:
        for border in range(len(piece) - 1, 0, -1):  # the longer left part first
            if piece[:border] in known and piece[border:] in known:
                yield piece[:border], piece[border:]
