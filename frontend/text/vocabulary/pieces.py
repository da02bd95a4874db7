"""Pieces of a vocabulary: their length limit, those that begin at a position in a text, and the merges that form
them."""

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
        """The ends of the pieces that begin at a position, the shortest first."""
        for length in self._lengths.get(text[position], ()):
            end = position + length
            if end > len(text):
                return
            if text[position:end] in self._pieces:
                yield end

    def longest_end(self, text: str, position: int) -> int:
        """The end of the longest piece at the position; 0 if there is none."""
        return max(self.ends(text, position), default=0)


Text = TypeVar("Text", str, bytes)


def merges(ordered: Iterable[Text], known: Container[Text]) -> Iterator[tuple[Text, Text]]:
    """The merges for the `tokenizers` library, for vocabularies that only order their pieces.

    SentencePiece and tiktoken merge any two neighbours that form a `known` piece, in the order of the pieces. So each
    way to split a piece into two others is a merge.
    """
    for piece in ordered:
        for border in range(len(piece) - 1, 0, -1):  # the longer left part first
            if piece[:border] in known and piece[border:] in known:
                yield piece[:border], piece[border:]
