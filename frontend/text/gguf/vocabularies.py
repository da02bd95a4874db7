"""The kinds of vocabularies that a GGUF file may have, by `tokenizer.ggml.model`, and what holds of each by default."""

from enum import Enum
from typing import NamedTuple

from ....protocol.fields.rules import shown
from .metadata import PREFIX, Metadata, text
from .token_list import Defaults, TokenList, read_tokens
from .word_rules import adds_bos_by_default


class Model(Enum):
    BYTE_PAIRS = "gpt2"
    PLAIN_PAIRS = "gemma4"  # of characters, with bytes for the rest
    SENTENCEPIECE = "llama"
    UNIGRAM = "t5"
    WORD_PIECES = "bert"


class Vocabulary(NamedTuple):
    model: Model
    tokens: TokenList


_NONE = ("none", "no_vocab")
_DEFAULTS = {
    Model.PLAIN_PAIRS: Defaults({}, adds_bos=True),
    Model.SENTENCEPIECE: Defaults(dict(bos=1, eos=2, unk=0), adds_bos=True),
    Model.UNIGRAM: Defaults(dict(eos=1, unk=2, pad=0), adds_eos=True),
    Model.WORD_PIECES: Defaults(dict(bos=101, unk=100, sep=102, pad=0, mask=103), adds_bos=True),
}


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    model = _model(metadata)
    defaults = _DEFAULTS.get(model) or Defaults({}, adds_bos=adds_bos_by_default(text(metadata, f"{PREFIX}pre")))
    return Vocabulary(model, read_tokens(metadata, defaults))


def _model(metadata: Metadata) -> Model:
    name = text(metadata, f"{PREFIX}model")
    if name is None or name in _NONE:
        raise ValueError("the file has none")
    if name not in [model.value for model in Model]:
        known = ", ".join(model.value for model in Model)
        raise ValueError(f"{PREFIX}model is {shown(name)}, a kind that is not read here; known are {known}")
    return Model(name)
