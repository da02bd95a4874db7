"""Tokens that are found in a text before any others: special ones (`control`) and `user defined` ones."""

import re
from collections.abc import Iterable
from dataclasses import replace

import tokenizers
from tokenizers import AddedToken

from ....protocol.fields.rules import shown
from ..vocabulary.sentencepiece_model import SPACE, Kind
from .metadata import PREFIX, Metadata, text
from .token_list import TokenList

_SPACES = re.compile(" +")
# Tokens of Phi-3's vocabulary that leave the spaces after them alone.
_LEAVE_SPACES = ("<unk>", "<s>", "<|endoftext|>")


def of_spaces(tokens: TokenList) -> list[int]:
    """The ids of user-defined tokens that consist of spaces."""
    pairs = enumerate(zip(tokens.texts, tokens.kinds, strict=True))
    return [at for at, (token, kind) in pairs if kind == Kind.USER_DEFINED and _SPACES.fullmatch(token)]


def with_spaces_as_pieces(tokens: TokenList) -> TokenList:
    """Replace spaces by ▁ in tokens of spaces: converters write them as spaces, which a vocabulary of pieces doesn't
    have."""
    texts = list(tokens.texts)
    for at in of_spaces(tokens):
        texts[at] = SPACE * len(texts[at])
    if len(set(texts)) < len(texts):
        raise ValueError("it has one token of spaces both as spaces and as ▁")
    return replace(tokens, texts=texts)


def add_tokens(
    backend: tokenizers.Tokenizer, metadata: Metadata, tokens: TokenList, in_normalized_text: Iterable[int] = ()
) -> None:
    """Add each under its own id; those `in_normalized_text` are searched there, after the others."""
    late = frozenset(in_normalized_text)
    added = tokens.added()
    backend.add_tokens(
        [
            AddedToken(
                tokens.texts[at],
                special=tokens.kinds[at] != Kind.USER_DEFINED,
                normalized=at in late,
                rstrip=takes_spaces_behind(metadata, tokens.texts[at]),
            )
            for at in added
        ]
    )
    for at in added:
        if backend.token_to_id(tokens.texts[at]) != at:
            raise ValueError(f"its token {shown(tokens.texts[at])} can't have the id {at:,}")


def takes_spaces_behind(metadata: Metadata, content: str) -> bool:
    """Whether the token takes spaces after it, like Phi-3's; the file has no field for that option."""
    is_phi = text(metadata, "general.architecture") == "phi3" and text(metadata, f"{PREFIX}model") == "llama"
    return is_phi and content not in _LEAVE_SPACES
