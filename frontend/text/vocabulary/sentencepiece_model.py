"""Reads a SentencePiece model file: its pieces with their scores, and its normalization of text.

Field numbers and defaults are those of `sentencepiece_model.proto`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.files.model_file import read_model_file
from .charsmap import Charsmap
from .pieces import check_length
from .wire_format import Field, fields

SPACE = "▁"  # a space within pieces


class Kind(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(IntEnum):
    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class Piece(NamedTuple):
    text: str
    score: float
    kind: Kind


@dataclass(slots=True)
class SentencePieceModel:
    pieces: list[Piece] = field(default_factory=list)
    algorithm: Algorithm = Algorithm.UNIGRAM
    whitespace_is_suffix: bool = False
    byte_fallback: bool = False
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    charsmap: bytes = b""  # rules that replace characters before anything else; empty for none
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    changes_decoded_text: bool = False

    def texts(self, *kinds: Kind) -> list[str]:
        return [piece.text for piece in self.pieces if piece.kind in kinds]

    @property
    def unknown(self) -> str:
        return self.texts(Kind.UNKNOWN)[0]

    @property
    def space(self) -> str:
        """The character that replaces a space when text is split into pieces."""
        return SPACE if self.escape_whitespaces else " "

    def special_tokens(self) -> dict[str, str]:
        """The model's names of the tokens that begin, end and pad a text, if it has them."""
        ids = {"bos_token": self.bos_id, "eos_token": self.eos_id, "pad_token": self.pad_id}
        named = {name: self.pieces[at].text for name, at in ids.items() if 0 <= at < len(self.pieces)}
        return {**named, "unk_token": self.unknown}


def read_sentencepiece(path: Path, settings: Mapping[str, Any]) -> SentencePieceModel:
    """Read a model; `settings` are transformers', which may rename pieces."""
    content, names = read_model_file(path), added_tokens(settings)
    try:
        model = _parsed(content)
        check_model(model)
        _rename(model, names)
    except ValueError as error:
        raise ConfigError(
            f"{path} can't be read as a SentencePiece model: {error}. Download it again, or give a folder with a "
            "tokenizer.json with tokenizer=…"
        ) from error
    return model


def added_tokens(settings: Mapping[str, Any]) -> dict[int, str]:
    """Names, by id, of tokens that are found in a text before any others."""
    listed = settings.get("added_tokens_decoder") or {}
    names = {int(at): token["content"] if isinstance(token, dict) else token for at, token in listed.items()}
    for at, name in names.items():
        if not isinstance(name, str):
            raise ValueError(f"the token {at} of added_tokens_decoder is {shown(name)}, which is no text")
    return names


def _rename(model: SentencePieceModel, names: Mapping[int, str]) -> None:
    """A slot that a model kept free gets the name of the token that was put there, and is found by that name alone."""
    taken = {piece.text for piece in model.pieces}
    for token_id, name in names.items():
        if 0 <= token_id < len(model.pieces) and name not in taken:
            kind = model.pieces[token_id].kind
            model.pieces[token_id] = Piece(name, 0.0, kind if kind == Kind.UNKNOWN else Kind.CONTROL)


# Field number → name, in the messages TrainerSpec and NormalizerSpec.
_TRAINER = {3: "algorithm", 24: "whitespace_is_suffix", 35: "byte_fallback", 41: "bos_id", 42: "eos_id", 43: "pad_id"}
_NORMALIZER = {2: "charsmap", 3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"}


def _algorithm(found: Field) -> Algorithm:
    if (value := found.whole_number()) not in list(Algorithm):
        raise ValueError(f"it cuts text by the algorithm {value}, which SentencePiece doesn't have")
    return Algorithm(value)


def _truth(found: Field) -> bool:
    return bool(found.whole_number())


_AS_TYPE: dict[str, Callable[[Field], Any]] = {
    **dict(algorithm=_algorithm, charsmap=Field.content),
    **dict.fromkeys(("bos_id", "eos_id", "pad_id"), Field.signed),
}


def _parsed(content: bytes) -> SentencePieceModel:
    model = SentencePieceModel()
    for found in fields(content):
        if found.number == 1:
            with _said_of(f"piece {len(model.pieces)}"):
                model.pieces.append(_piece(found.content()))
        elif found.number == 2:
            with _said_of("the trainer's description"):
                _fill(model, found.content(), _TRAINER)
        elif found.number == 3:
            with _said_of("the normalizer's description"):
                _fill(model, found.content(), _NORMALIZER)
        elif found.number == 5:
            with _said_of("the denormalizer's description"):
                rules = [each.content() for each in fields(found.content()) if each.number == 2]
                model.changes_decoded_text = any(rules)
    return model


@contextmanager
def _said_of(part: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"in {part}, {error}") from error


def _fill(model: SentencePieceModel, message: bytes, names: Mapping[int, str]) -> None:
    for found in fields(message):
        if name := names.get(found.number):
            setattr(model, name, _AS_TYPE.get(name, _truth)(found))


def _piece(message: bytes) -> Piece:
    text, score, kind = "", 0.0, Kind.NORMAL
    for found in fields(message):
        if found.number == 1:
            text = found.content().decode()
        elif found.number == 2:
            score = found.real()
        elif found.number == 3:
            if (value := found.whole_number()) not in list(Kind):
                raise ValueError(f"its kind is {value}, which SentencePiece doesn't have")
            kind = Kind(value)
    return Piece(text, score, kind)


def _is_usable(score: float, algorithm: Algorithm) -> bool:
    """Whether a score is usable: unigram models sum scores, BPE orders by them, the others ignore them."""
    if algorithm == Algorithm.UNIGRAM:
        return math.isfinite(score)
    return algorithm != Algorithm.BPE or not math.isnan(score)


def check_model(model: SentencePieceModel) -> None:
    """Check a model as SentencePiece does when it loads one."""
    if not model.pieces:
        raise ValueError("it has no pieces")
    if len(model.texts(Kind.UNKNOWN)) != 1:
        raise ValueError(f"it has {len(model.texts(Kind.UNKNOWN))} pieces for unknown text, and must have one")
    seen: set[str] = set()
    for token_id, piece in enumerate(model.pieces):
        if not piece.text or piece.text in seen:
            raise ValueError(f"piece {token_id} is {f'{piece.text!r} once more' if piece.text else 'empty'}")
        check_length(piece.text, f"piece {token_id}")
        if not _is_usable(piece.score, model.algorithm):
            raise ValueError(f"piece {token_id}, {piece.text!r}, has the score {piece.score}")
        seen.add(piece.text)
    if model.charsmap:
        Charsmap(model.charsmap)
    missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in seen]
    if model.byte_fallback and missing:
        raise ValueError(f"it writes unknown characters as bytes, and {missing[0]} is not one of its pieces")
    if not model.byte_fallback and model.texts(Kind.BYTE):
        raise ValueError("it has pieces for bytes, and does not write unknown characters as bytes")


DummyPrefix = Literal["never", "first", "always"]


def dummy_prefix(model: SentencePieceModel, settings: Mapping[str, Any]) -> DummyPrefix:
    if not model.add_dummy_prefix or settings.get("add_prefix_space") is False:
        return "never"
    return "always" if settings.get("legacy") else "first"
