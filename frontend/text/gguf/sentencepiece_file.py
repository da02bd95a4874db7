"""Writes a SentencePiece model as a file, for the `Segmenter` that reads it when a tokenizer is loaded.

Field numbers are those of `sentencepiece_model.proto`.
"""

import struct

from ..vocabulary.sentencepiece_model import Piece, SentencePieceModel

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
