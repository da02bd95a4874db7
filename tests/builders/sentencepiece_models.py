"""SentencePiece models: trained on the spot with its own trainer, and written piece by piece where a test wants pieces
that no training gives."""

import io
import struct
from collections.abc import Iterable
from typing import Any

import sentencepiece
from builders.tokenizer_kinds import CORPUS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, _, CHAR = range(1, 5)
# How Llama 2, Mistral and most other models for text generation are trained.
AS_LLAMA = dict(
    model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
    split_digits=True, allow_whitespace_only_pieces=True,
)  # fmt: skip


def trained(sentences: Iterable[str] = CORPUS * 20, **options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, minloglevel=2, hard_vocab_limit=False,
        **{"vocab_size": 600, **options},
    )  # fmt: skip
    return model.getvalue()


def written(
    pieces: Iterable[tuple[str, float, int]],
    *,
    algorithm: int = BPE,
    byte_fallback: bool = False,
    add_dummy_prefix: bool = True,
    remove_extra_whitespaces: bool = False,
    escape_whitespaces: bool = True,
    charsmap: bytes = b"",
) -> bytes:
    """`<unk>`, `<s>` and `</s>`, the bytes where they are asked for, then the pieces."""
    first = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    bytes_ = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)] if byte_fallback else []
    model = b"".join(_field(1, _piece(*piece)) for piece in (*first, *bytes_, *pieces))
    spec = {3: algorithm, 35: byte_fallback}
    model += _field(2, b"".join(_number(number, int(value)) for number, value in spec.items()))
    normalizer = {3: add_dummy_prefix, 4: remove_extra_whitespaces, 5: escape_whitespaces}
    flags = b"".join(_number(number, int(value)) for number, value in normalizer.items())
    return model + _field(3, flags + (_field(2, charsmap) if charsmap else b""))


def _piece(text: str, score: float, kind: int) -> bytes:
    return _field(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _number(3, kind)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
