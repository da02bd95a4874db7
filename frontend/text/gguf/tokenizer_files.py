"""Writes the files of a GGUF file's tokenizer: `tokenizer.json`, `tokenizer_config.json`, and the chat templates."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from ..incremental import panics_as
from ..vocabulary.folder import add_begin_and_end
from ..vocabulary.segmenter import SEGMENTER_FILE
from ..vocabulary.sentencepiece_model import Algorithm, Kind
from .added_tokens import takes_spaces_behind
from .byte_pairs import byte_level_tokenizer, plain_tokenizer
from .chat_templates import write_chat_templates
from .metadata import Metadata
from .sentencepiece import tokenizer_of
from .token_list import TokenList
from .vocabularies import Model, Vocabulary, read_vocabulary
from .word_pieces import word_piece_tokenizer

_ALGORITHMS = {Model.SENTENCEPIECE: Algorithm.BPE, Model.UNIGRAM: Algorithm.UNIGRAM}
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class _Made(NamedTuple):
    backend: tokenizers.Tokenizer
    settings: dict[str, Any]
    segmenter: bytes | None = None


def write_tokenizer(metadata: Metadata, folder: Path) -> TokenList:
    """Into a folder that is there; gives the file's tokens.

    Raises a ValueError that says what can't be used, as the rest of a sentence. The templates are written first: they
    are good with another tokenizer, too.
    """
    with panics_as(ValueError, "its tokens can't be put together"):
        write_chat_templates(metadata, folder)
        vocabulary = read_vocabulary(metadata)
        made = _made(metadata, vocabulary)
        settings = {**_settings(metadata, vocabulary.tokens), **made.settings}
        if vocabulary.model != Model.WORD_PIECES:
            add_begin_and_end(made.backend, settings)
        # Not by the library, which doesn't tell a full disk from anything else.
        (folder / "tokenizer.json").write_text(made.backend.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if made.segmenter is not None:
        (folder / SEGMENTER_FILE).write_bytes(made.segmenter)
    return vocabulary.tokens


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
    """As tokenizer_config.json has them. A token with a task is special, so that none is named that is text as well."""
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
