"""Vocabularies with merges as `tokenizers` objects: byte-level ones, like GPT-2's and most since, and Gemma 4's."""

from collections.abc import Iterator, Mapping

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from ..byte_level import BYTE_OF_CHARACTER
from ..vocabulary.pieces import check_length, merges
from ..vocabulary.sentencepiece_model import SPACE, Kind
from .added_tokens import add_tokens, with_spaces_as_pieces
from .metadata import PREFIX, Metadata, flag, text, texts
from .token_list import TokenList
from .word_rules import PLAIN_NAMES, normalizer_of, word_rule


def byte_level_tokenizer(metadata: Metadata, tokens: TokenList) -> tokenizers.Tokenizer:
    name = text(metadata, f"{PREFIX}pre")
    if name in PLAIN_NAMES:
        return plain_tokenizer(metadata, tokens)
    rule = word_rule(name)
    vocabulary = _vocabulary(tokens)
    found = _tiktoken_merges(tokens) if rule.is_tiktoken else _merges(metadata, vocabulary)
    backend = tokenizers.Tokenizer(BPE(vocabulary, list(found), ignore_merges=rule.ignore_merges))
    is_composed = flag(metadata, f"{PREFIX}normalizer.nfc")
    normalizer = normalizer_of(rule if is_composed is None else rule._replace(is_composed=is_composed))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(rule.steps())
    backend.decoder = decoders.ByteLevel()
    add_tokens(backend, metadata, tokens)
    return backend


def plain_tokenizer(metadata: Metadata, tokens: TokenList) -> tokenizers.Tokenizer:
    """A tokenizer of characters, with ▁ for a space and bytes for characters that are no tokens; the text isn't
    split first."""
    tokens = with_spaces_as_pieces(tokens)  # and a literal ▁▁ is one of them, as published
    vocabulary = {token: at for at, token in enumerate(tokens.texts)}
    backend = tokenizers.Tokenizer(
        BPE(
            vocabulary,
            list(_merges(metadata, vocabulary)),
            unk_token=tokens.token("unk") or next(iter(_of_kind(tokens, Kind.UNKNOWN)), None),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    add_tokens(backend, metadata, tokens)
    return backend


def _of_kind(tokens: TokenList, kind: Kind) -> Iterator[str]:
    return (token for token, each in zip(tokens.texts, tokens.kinds, strict=True) if each == kind)


def _vocabulary(tokens: TokenList) -> dict[str, int]:
    """The vocabulary without the added tokens at its end, which get their ids when they are added, one after
    another."""
    added = set(tokens.added())
    size = len(tokens.texts)
    while size and size - 1 in added:
        size -= 1
    return {token: at for at, token in enumerate(tokens.texts[:size])}


def _merges(metadata: Metadata, vocabulary: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The merges that form a token; the first space, except one at the beginning, separates the two parts."""
    key = f"{PREFIX}merges"
    found = texts(metadata, key)
    if found is None:
        raise ValueError(f"it has no {key}")
    for at, written in enumerate(found):
        border = written.find(" ", 1)
        if border < 0 or border == len(written) - 1:
            raise ValueError(f"{key} has one text at index {at:,}, and needs two with a space between them")
        left, right = written[:border], written[border + 1 :]
        if left in vocabulary and right in vocabulary and left + right in vocabulary:
            yield left, right


def _tiktoken_merges(tokens: TokenList) -> Iterator[tuple[str, str]]:
    ordered = [
        token
        for token, kind in zip(tokens.texts, tokens.kinds, strict=True)
        if kind == Kind.NORMAL and all(character in BYTE_OF_CHARACTER for character in token)
    ]
    for token in ordered:
        check_length(token, "a token")
    return merges(ordered, frozenset(ordered))
