"""BERT's kind of vocabulary; `frontend/text/gguf/byte_pairs.py` and `sentencepiece.py` next to it are others.

A word becomes the longest token that begins it, and so on.
"""

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from ..vocabulary.sentencepiece_model import SPACE, Kind
from .added_tokens import add_tokens
from .metadata import PREFIX, Metadata, flag
from .token_list import TokenList

_INSIDE = "##"  # marks a piece that doesn't begin a word


def word_piece_tokenizer(metadata: Metadata, tokens: TokenList) -> tokenizers.Tokenizer:
    unknown = tokens.token("unk")
    if unknown is None:
        raise ValueError("it has no token for unknown text")
    texts = [_piece(token, kind) for token, kind in zip(tokens.texts, tokens.kinds, strict=True)]
    vocabulary = {piece: at for at, piece in enumerate(texts)}
    if len(vocabulary) < len(texts):
        twice = next(piece for at, piece in enumerate(texts) if vocabulary[piece] != at)
        raise ValueError(f"{PREFIX}tokens has the piece {twice!r} twice")
    is_lower = flag(metadata, f"{PREFIX}normalizer.lowercase") is not False
    strips = flag(metadata, f"{PREFIX}normalizer.strip_accents")
    backend = tokenizers.Tokenizer(WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=is_lower, strip_accents=is_lower if strips is None else strips
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    add_tokens(backend, metadata, tokens)
    ends = [(token, tokens.ids[task]) for task in ("bos", "sep") if (token := tokens.token(task))]
    if len(ends) == 2:
        [(first, _), (last, _)] = ends
        text = [f"{first}:0", "$A:0", f"{last}:0"]
        backend.post_processor = TemplateProcessing(single=text, pair=[*text, "$B:1", f"{last}:1"], special_tokens=ends)
    return backend


def _piece(token: str, kind: Kind) -> str:
    """Converters mark pieces that begin a word with ▁, instead of marking the others."""
    if kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED) or (token.startswith("[") and token.endswith("]")):
        return token
    is_beginning = token.startswith(SPACE) and token != SPACE
    return token.removeprefix(SPACE) if is_beginning else _INSIDE + token
