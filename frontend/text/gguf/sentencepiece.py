"""Vocabularies of SentencePiece models: BPE by scores (Llama 2, Mistral, Gemma, ERNIE) and unigram (T5).

The file's tokens are turned back into a `SentencePieceModel`; the rest is as for a `tokenizer.model`.
"""

import struct
from collections.abc import Collection
from typing import Any, NamedTuple

import tokenizers

from ..vocabulary.sentencepiece_model import Algorithm, Kind, Piece, SentencePieceModel, check_model
from ..vocabulary.sentencepiece_tokenizer import needs_segmenter, sentencepiece_tokenizer
from .added_tokens import add_tokens, of_spaces, with_spaces_as_pieces
from .metadata import PREFIX, Metadata, flag, whole_numbers
from .token_list import TokenList

# Vocabularies with this token, Mistral's since the third version, add a space only before the first word of a text;
# others also add one after every special token.
_ONLY_FIRST = "[INST]"


class SentencePieceTokenizer(NamedTuple):
    backend: tokenizers.Tokenizer
    settings: dict[str, Any]  # in transformers' terms; they decide about a text's first space
    segmenter: bytes | None  # the content of `SEGMENTER_FILE`, if the backend needs it


def tokenizer_of(metadata: Metadata, tokens: TokenList, algorithm: Algorithm) -> SentencePieceTokenizer:
    settings = _settings(metadata, tokens)
    # If no space is added before a text, a token of spaces is one anywhere.
    spaces = () if settings["legacy"] or settings["add_prefix_space"] else of_spaces(tokens)
    if spaces:
        tokens = with_spaces_as_pieces(tokens)
    model = _model(metadata, tokens, algorithm, settings)
    is_cut = needs_segmenter(model)
    if is_cut and spaces:  # the library then searches for tokens in texts whose spaces are no ▁ yet
        model = _model(metadata, tokens, algorithm, settings, spaces)
    check_model(model)
    added = {str(at): tokens.texts[at] for at in tokens.added()}
    backend = sentencepiece_tokenizer(model, {**settings, "added_tokens_decoder": added})
    if is_cut:
        tokens = tokens.without_added(spaces)
    add_tokens(backend, metadata, tokens, () if is_cut else spaces)
    return SentencePieceTokenizer(backend, settings, sentencepiece_file(model) if is_cut else None)


def _settings(metadata: Metadata, tokens: TokenList) -> dict[str, Any]:
    if flag(metadata, f"{PREFIX}add_space_prefix") is False:
        return {"add_prefix_space": False, "legacy": False}
    is_only_first = _ONLY_FIRST in [tokens.texts[at] for at in tokens.added() if tokens.kinds[at] == Kind.CONTROL]
    return {"add_prefix_space": True, "legacy": not is_only_first}


def _model(
    metadata: Metadata,
    tokens: TokenList,
    algorithm: Algorithm,
    settings: dict[str, Any],
    user_defined: Collection[int] = (),
) -> SentencePieceModel:
    """Added tokens become control pieces of the model, since they are no part of words; `user_defined` ones are part
    of words."""
    kinds = list(tokens.kinds)
    for at in tokens.added():
        kinds[at] = Kind.UNKNOWN if kinds[at] == Kind.UNKNOWN else Kind.CONTROL
    for at in user_defined:
        kinds[at] = Kind.USER_DEFINED
    _leave_one_unknown(kinds, tokens)
    return SentencePieceModel(
        pieces=list(map(Piece, tokens.texts, tokens.scores or [0.0] * len(kinds), kinds)),
        algorithm=algorithm,
        byte_fallback=Kind.BYTE in kinds,
        charsmap=_charsmap(metadata),
        add_dummy_prefix=settings["add_prefix_space"],
        remove_extra_whitespaces=flag(metadata, f"{PREFIX}remove_extra_whitespaces") is True,
    )


def _leave_one_unknown(kinds: list[Kind], tokens: TokenList) -> None:
    unknown = [at for at, kind in enumerate(kinds) if kind == Kind.UNKNOWN]
    named = tokens.ids.get("unk")
    if not unknown and named is None:
        raise ValueError("it has no token for unknown text")
    one = named if named is not None and (named in unknown or not unknown) else unknown[0]
    for at in unknown:
        kinds[at] = Kind.CONTROL
    kinds[one] = Kind.UNKNOWN


def _charsmap(metadata: Metadata) -> bytes:
    key = f"{PREFIX}precompiled_charsmap"
    numbers = whole_numbers(metadata, key) or []
    if not all(-128 <= number < 256 for number in numbers):
        raise ValueError(f"{key} has a number that is no byte")
    return bytes([number & 0xFF for number in numbers])


# --- the file ---------------------------------------------------------------------------------------------------------
# The `Segmenter` reads it when a tokenizer is loaded. Field numbers are those of `sentencepiece_model.proto`.

_FOUR_BYTES, _CONTENT = 5, 2


def sentencepiece_file(model: SentencePieceModel) -> bytes:
    trainer = _number(3, model.algorithm) + _number(35, model.byte_fallback)
    normalizer = _number(3, model.add_dummy_prefix) + _number(4, model.remove_extra_whitespaces)
    normalizer += _number(5, model.escape_whitespaces) + (_content(2, model.charsmap) if model.charsmap else b"")
    pieces = b"".join([_content(1, _piece(piece)) for piece in model.pieces])
    return pieces + _content(2, trainer) + _content(3, normalizer)


def _piece(piece: Piece) -> bytes:
    score = _varint(2 << 3 | _FOUR_BYTES) + struct.pack("<f", piece.score)
    return _content(1, piece.text.encode()) + score + _number(3, piece.kind)


def _content(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _CONTENT) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
