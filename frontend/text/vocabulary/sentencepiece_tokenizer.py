"""A SentencePiece model as a `tokenizers` object that gives the same ids as the model's own library.

Most models for text generation are BPE with scores that all differ and change no characters: those become merges, which
the library applies itself. For the others a `Segmenter` splits the text, and the library only looks up the pieces.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from ....protocol.errors import ConfigError
from ..incremental import ALL_SPACES
from .pieces import merges
from .sentencepiece_model import SPACE, Algorithm, DummyPrefix, Kind, SentencePieceModel, added_tokens, dummy_prefix


def refuse_what_differs(model: SentencePieceModel, path: Path) -> None:
    """Raise ConfigError for models whose ids or text would differ here."""
    if model.algorithm == Algorithm.WORD:
        reason = "cuts text into words only"
    elif model.whitespace_is_suffix:
        reason = "writes spaces behind words, which a stream of text can't take back"
    elif model.changes_decoded_text:
        reason = "replaces characters of decoded text, which a stream of text can't do"
    else:
        return
    raise ConfigError(
        f"{path} is a SentencePiece model that {reason}; such models are not read here. Give a folder with a "
        "tokenizer.json with tokenizer=…"
    )


def needs_segmenter(model: SentencePieceModel) -> bool:
    """Whether the library's merges would differ from the model's: with equal scores, unknown parts, or special
    pieces."""
    normal = {piece.text: piece.score for piece in model.pieces if piece.kind == Kind.NORMAL}
    merged = [text for text in normal if len(text) > 1]
    others = {piece.kind for piece in model.pieces} & {Kind.USER_DEFINED, Kind.UNUSED}
    return bool(
        model.algorithm == Algorithm.UNIGRAM
        or (model.algorithm == Algorithm.CHAR and merged)
        or model.charsmap
        or model.remove_extra_whitespaces
        or not model.escape_whitespaces
        or others
        or len({normal[text] for text in merged}) < len(merged)
        or not normal.keys() >= set("".join(merged))
        or any(len(piece.text) == 1 and piece.kind not in (Kind.NORMAL, Kind.CONTROL) for piece in model.pieces)
    )


def sentencepiece_tokenizer(model: SentencePieceModel, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    vocabulary = {piece.text: token_id for token_id, piece in enumerate(model.pieces)}
    prefix = dummy_prefix(model, settings)
    if needs_segmenter(model):
        backend = tokenizers.Tokenizer(BPE(vocabulary, [], unk_token=model.unknown, ignore_merges=True))
    else:
        normal = [piece for piece in model.pieces if piece.kind == Kind.NORMAL]
        ordered = [piece.text for piece in sorted(normal, key=lambda piece: piece.score, reverse=True)]
        backend = tokenizers.Tokenizer(
            BPE(
                vocabulary,
                list(merges(ordered, frozenset(ordered))),
                unk_token=model.unknown,
                fuse_unk=True,
                byte_fallback=model.byte_fallback,
            )
        )
        backend.normalizer = normalizers.Replace(" ", SPACE)
        if prefix == "always":
            backend.normalizer = normalizers.Sequence([backend.normalizer, normalizers.Prepend(SPACE)])
        elif prefix == "first":
            backend.pre_tokenizer = _first_prefix()
    backend.decoder = _decoder(model, prefix)
    # Tokens listed in the settings are added when the settings are read, with their options.
    listed = set(added_tokens(settings).values())
    control = [text for text in model.texts(Kind.CONTROL) if text not in listed]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    return backend


def _first_prefix() -> pre_tokenizers.PreTokenizer:
    """Add a ▁ before a text, whatever it begins with.

    `Metaspace` adds its mark only before a text that doesn't begin with it. No space is left in the text, so the first
    step always adds one; the second turns it into a ▁.
    """
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(" ", prepend_scheme="first", split=False),
            pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=False),
        ]
    )


def _decoder(model: SentencePieceModel, prefix: DummyPrefix) -> decoders.Decoder:
    """Bytes are decoded in any case: this form is recognized by ▁ for a space, and models without bytes are not
    affected.

    A model that removes extra spaces from text also shows none at the beginning of an answer.
    """
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.escape_whitespaces and model.remove_extra_whitespaces:
        steps.append(decoders.Strip(" ", ALL_SPACES, 0))
    elif model.escape_whitespaces and prefix != "never":
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)
