"""Computes the merges that the `tokenizers` library needs, for vocabularies that only order their pieces.

SentencePiece and tiktoken merge whatever two neighbours make a known piece, the first piece of that order first. So
each way to cut a piece into two others is a merge.
"""

from collections.abc import Container, Iterable, Iterator
from typing import TypeVar

Text = TypeVar("Text", str, bytes)


def merges(ordered: Iterable[Text], known: Container[Text]) -> Iterator[tuple[Text, Text]]:
    """Of each piece, in their order, the pairs that make it; only `known` pieces are ever parts."""
    for piece in ordered:
        for border in range(len(piece) - 1, 0, -1):  # the longer left part first
            if piece[:border] in known and piece[border:] in known:
                yield piece[:border], piece[border:]
