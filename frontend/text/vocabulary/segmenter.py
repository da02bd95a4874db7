"""Splits text into pieces exactly like SentencePiece, for models that the `tokenizers` library can't represent.

These have unigram scores (whose sums SentencePiece rounds to float32, which decides between equal splits), rules that
replace characters, pieces with equal scores, or user-defined or unused pieces. A `Segmenter` is the pre-tokenizer of a
`tokenizers` object: every piece that it returns is in the vocabulary.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from . import SEGMENTER_FILE
from .charsmap import Charsmap
from .merge_pieces import PieceMerger
from .pieces import PieceIndex
from .sentencepiece_model import Algorithm, DummyPrefix, Kind, SentencePieceModel, dummy_prefix, read_sentencepiece
from .weigh_pieces import PieceLattice

_MOST_WORDS = 1 << 15
_LONGEST_WORD = 64


def attach_segmenter(backend: tokenizers.Tokenizer, folder: Path, settings: Mapping[str, Any]) -> None:
    """Complete a tokenizer read from `folder` that needs a `Segmenter`."""
    model = read_sentencepiece(folder / SEGMENTER_FILE, settings)
    segmenter = Segmenter(model, dummy_prefix(model, settings))
    backend.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(segmenter)


class Segmenter:
    def __init__(self, model: SentencePieceModel, prefix: DummyPrefix) -> None:
        self._model = model
        self._prefix = prefix
        self._user_defined = PieceIndex(model.texts(Kind.USER_DEFINED))
        self._charsmap = Charsmap(model.charsmap) if model.charsmap else None
        cut = PieceLattice(model).pieces if model.algorithm == Algorithm.UNIGRAM else PieceMerger(model).pieces
        self._pieces: Callable[[str], list[str]] = _by_words(model, cut)
        self._known = frozenset(piece.text for piece in model.pieces)

    def pre_tokenize(self, text: tokenizers.PreTokenizedString) -> None:
        """Split text between added tokens; called by the library."""
        text.split(lambda index, part: [tokenizers.NormalizedString(piece) for piece in self.cut(str(part), index)])

    def cut(self, text: str, index: int = 0) -> list[str]:
        """The pieces of a text, or of its part after `index` others."""
        has_prefix = self._prefix == "always" or (self._prefix == "first" and not index)
        return list(self._in_vocabulary(self._pieces(self.normalized(text, has_prefix=has_prefix))))

    def normalized(self, text: str, *, has_prefix: bool) -> str:
        """Normalize text as in pieces: characters replaced, extra spaces removed, and ▁ for a space."""
        model = self._model
        if model.remove_extra_whitespaces:
            parts = _without_extra_spaces(list(self._replaced(text)))
        else:
            parts = [text] if self._charsmap is None else list(self._replaced(text))
        if not parts or not text:
            return ""
        space = model.space
        found = (space if has_prefix else "") + "".join(parts).replace(" ", space)
        # At the end, a ▁ in the text itself also counts as an extra space.
        return found.rstrip(space) if model.remove_extra_whitespaces else found

    def _replaced(self, text: str) -> Iterator[str]:
        """The text in parts, each after applying its rule; user-defined pieces stay unchanged."""
        if self._charsmap is None and not self._user_defined:
            yield from text
            return
        position = 0
        while position < len(text):
            if end := self._user_defined.longest_end(text, position):
                part = text[position:end]
            elif self._charsmap is not None and (rule := self._charsmap.longest(text, position)):
                part, end = rule
            else:
                end = position + 1
                part = text[position]
            yield part
            position = end

    def _in_vocabulary(self, pieces: list[str]) -> Iterator[str]:
        """Unknown characters as bytes, or adjacent ones as one unknown token."""
        was_unknown = False
        for piece in pieces:
            is_unknown = piece not in self._known
            if not is_unknown:
                yield piece
            elif self._model.byte_fallback:
                yield from (f"<0x{byte:02X}>" for byte in piece.encode())
            elif not was_unknown:
                yield self._model.unknown
            was_unknown = is_unknown


def _without_extra_spaces(parts: list[str]) -> list[str]:
    """Remove spaces at the beginning and after other spaces. The inside of a part is not searched."""
    first = next((index for index, part in enumerate(parts) if part != " "), len(parts))
    kept: list[str] = []
    is_after_space = True
    for part in parts[first:]:
        rest = part.lstrip(" ") if is_after_space else part
        if rest:
            is_after_space = rest.endswith(" ")
        kept.append(rest)
    return kept


def _by_words(model: SentencePieceModel, cut: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Cache words if no piece crosses a word's end: then merges concern each word alone."""
    space = re.escape(model.space)
    goes_beyond = re.compile(f"[^{space}]{space}")
    if model.algorithm == Algorithm.UNIGRAM or any(goes_beyond.search(piece.text) for piece in model.pieces):
        return cut
    words = re.compile(f"{space}*[^{space}]+|{space}+")
    remembered = lru_cache(_MOST_WORDS)(lambda word: tuple(cut(word)))

    def pieces(text: str) -> list[str]:
        found: list[str] = []
        for word in words.findall(text):
            found += remembered(word) if len(word) <= _LONGEST_WORD else cut(word)
        return found

    return pieces
