"""Writes the files of a GGUF file's tokenizer: `tokenizer.json`, `tokenizer_config.json`, and the chat templates."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers.processors import TemplateProcessing

from ....protocol.fields.rules import shown
from ..incremental import panics_as
from ..vocabulary import SEGMENTER_FILE
from ..vocabulary.folder import add_begin_and_end
from ..vocabulary.sentencepiece_model import Algorithm, Kind
from .added_tokens import takes_spaces_behind
from .byte_pairs import byte_level_tokenizer, plain_tokenizer
from .metadata import PREFIX, Metadata, text
from .sentencepiece import tokenizer_of
from .token_list import Defaults, TokenList, read_tokens
from .word_pieces import word_piece_tokenizer
from .word_rules import adds_bos_by_default


class Model(Enum):
    """The kinds of vocabularies in GGUF files, by `tokenizer.ggml.model`."""

    BYTE_PAIRS = "gpt2"
    PLAIN_PAIRS = "gemma4"  # of characters, with bytes for the rest
    SENTENCEPIECE = "llama"
    UNIGRAM = "t5"
    WORD_PIECES = "bert"


class Vocabulary(NamedTuple):
    model: Model
    tokens: TokenList


_NONE = ("none", "no_vocab")
# By kind, if the file has no value.
_DEFAULTS = {
    Model.PLAIN_PAIRS: Defaults({}, adds_bos=True),
    Model.SENTENCEPIECE: Defaults(dict(bos=1, eos=2, unk=0), adds_bos=True),
    Model.UNIGRAM: Defaults(dict(eos=1, unk=2, pad=0), adds_eos=True),
    Model.WORD_PIECES: Defaults(dict(bos=101, unk=100, sep=102, pad=0, mask=103), adds_bos=True),
}

_OF_XLM_ROBERTA = Defaults(dict(bos=0, pad=1, eos=2, unk=3), adds_bos=True, adds_eos=True)


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    model = _model(metadata)
    defaults = _DEFAULTS.get(model) or Defaults({}, adds_bos=adds_bos_by_default(text(metadata, f"{PREFIX}pre")))
    if model == Model.UNIGRAM and metadata.get("general.architecture") == "bert":
        defaults = _OF_XLM_ROBERTA
    return Vocabulary(model, read_tokens(metadata, defaults))


def _model(metadata: Metadata) -> Model:
    name = text(metadata, f"{PREFIX}model")
    if name is None or name in _NONE:
        raise ValueError("the file has none")
    if name not in [model.value for model in Model]:
        known = ", ".join(model.value for model in Model)
        raise ValueError(f"{PREFIX}model is {shown(name)}, a kind that is not read here; known are {known}")
    return Model(name)


_ALGORITHMS = {Model.SENTENCEPIECE: Algorithm.BPE, Model.UNIGRAM: Algorithm.UNIGRAM}
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class _Made(NamedTuple):
    backend: tokenizers.Tokenizer
    settings: dict[str, Any]
    segmenter: bytes | None = None


def write_tokenizer(metadata: Metadata, folder: Path) -> TokenList:
    """Write into an existing folder; returns the file's tokens.

    Raises a ValueError, worded as the rest of a sentence. The templates are written first: they are useful with another
    tokenizer, too.
    """
    with panics_as(ValueError, "its tokens can't be put together"):
        write_chat_templates(metadata, folder)
        vocabulary = read_vocabulary(metadata)
        made = _made(metadata, vocabulary)
        settings = {**_settings(metadata, vocabulary.tokens), **made.settings}
        if vocabulary.model != Model.WORD_PIECES:
            add_begin_and_end(made.backend, settings)
            _add_pairs(metadata, made.backend, settings)
        # Not by the library, which doesn't distinguish a full disk from other errors.
        (folder / "tokenizer.json").write_text(made.backend.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if made.segmenter is not None:
        (folder / SEGMENTER_FILE).write_bytes(made.segmenter)
    return vocabulary.tokens


# How many end tokens stand between two texts, where an encoder reads both.
_BETWEEN_TEXTS = {"bert": 2, "modern-bert": 1}


def _add_pairs(metadata: Metadata, backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> None:
    """Let an encoder's tokenizer join two texts, as those of XLM-RoBERTa's and ModernBERT's kinds do."""
    count = _BETWEEN_TEXTS.get(str(metadata.get("general.architecture")), 0)
    first, last = (settings[f"{task}_token"] if settings[f"add_{task}_token"] else None for task in ("bos", "eos"))
    if not count or first is None or last is None:
        return
    backend.post_processor = TemplateProcessing(
        single=[f"{first}:0", "$A:0", f"{last}:0"],
        pair=[f"{first}:0", "$A:0", *[f"{last}:0"] * count, "$B:0", f"{last}:0"],
        special_tokens=[(token, backend.token_to_id(token)) for token in {first, last}],
    )


def _made(metadata: Metadata, vocabulary: Vocabulary) -> _Made:
    model, tokens = vocabulary
    if model in _ALGORITHMS:
        return _Made(*tokenizer_of(metadata, tokens, _ALGORITHMS[model]))
    try:
        make = {Model.PLAIN_PAIRS: plain_tokenizer, Model.WORD_PIECES: word_piece_tokenizer}
        return _Made(make.get(model, byte_level_tokenizer)(metadata, tokens), {})
    except ValueError:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise ValueError(str(error)) from error


def _settings(metadata: Metadata, tokens: TokenList) -> dict[str, Any]:
    """The content of tokenizer_config.json. A token with a role is special, so ordinary text is never named."""
    named = {task: tokens.token(task) for task in _NAMED if task in tokens.ids and _is_whole(tokens, task)}
    options = {
        str(tokens.ids[task]): {"content": token, "special": True, "normalized": False, "rstrip": True}
        for task, token in named.items()
        if token is not None and takes_spaces_behind(metadata, token)
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{task}_token": named.get(task) for task in _NAMED},
        "add_bos_token": tokens.adds_bos and "bos" in named,
        "add_eos_token": tokens.adds_eos and "eos" in named,
        "clean_up_tokenization_spaces": False,
        **({"added_tokens_decoder": options} if options else {}),
    }


def _is_whole(tokens: TokenList, task: str) -> bool:
    return tokens.kinds[tokens.ids[task]] not in (Kind.NORMAL, Kind.BYTE)


# --- chat templates --------------------------------------------------------------------------------------------------
# They become the files of a model's folder: one default, and others by name.

_KEY = "tokenizer.chat_template"
_FOLDER = "additional_chat_templates"
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")  # it becomes the name of a file
_MOST = 64
_MOST_CHARACTERS = 1 << 20  # published ones have some 30,000 at most


def write_chat_templates(metadata: Metadata, folder: Path) -> None:
    if default := _template(metadata, _KEY):
        (folder / "chat_template.jinja").write_text(default, encoding="utf-8")
    named = dict(_named(metadata))
    if len(named) > _MOST:
        raise ValueError(f"it has {len(named):,} chat templates, and at most {_MOST} are read")
    if named:
        (folder / _FOLDER).mkdir()
    for name, template in named.items():
        (folder / _FOLDER / f"{name}.jinja").write_text(template, encoding="utf-8")


def _named(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for key in metadata:
        if not key.startswith(f"{_KEY}."):
            continue
        name = key.removeprefix(f"{_KEY}.")
        if not _NAME.fullmatch(name):
            raise ValueError(f"its chat template {shown(name)} has a name that is not of letters, digits and _")
        if template := _template(metadata, key):
            yield name, template


def _template(metadata: Metadata, key: str) -> str | None:
    found = text(metadata, key)
    if found is not None and len(found) > _MOST_CHARACTERS:
        raise ValueError(
            f"{shown(key)} has {len(found):,} characters, and no model's template has more than {_MOST_CHARACTERS:,}"
        )
    return found
