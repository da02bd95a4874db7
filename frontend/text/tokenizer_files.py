"""Reads a tokenizer's files: `tokenizer.json`, and the tokens added by the JSON files next to it."""

from pathlib import Path
from typing import Any

import tokenizers

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.model_file import read_model_file
from .chat_templates import text_value
from .incremental import panics_as

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FURTHER_TOKENS = ("additional_special_tokens", "extra_special_tokens")
_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        content = read_model_file(path)
    except FileNotFoundError:
        raise ModelNotFoundError(f"There is no tokenizer.json in {folder}.") from None
    try:
        with panics_as(ConfigError, "its reader ended"):
            backend = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises bare Exceptions
        raise ConfigError(f"{path} can't be read by tokenizers {tokenizers.__version__}: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _content(token: Any) -> str:
    """A token's text, from a string or either form of an AddedToken."""
    return text_value(token["content"] if isinstance(token, dict) else token)


def named_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """The texts of the special tokens in the settings, by role."""
    return {name: _content(settings[name]) for name in _NAMED_TOKENS if settings.get(name)}


def add_missing_tokens(backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> None:
    """Add tokens that only the settings have, in transformers' order: by id, then special ones.

    A token that is both named and listed has the list's options; adding it again would reset them.
    """
    listed = settings.get("added_tokens_decoder") or {}
    backend.add_tokens([_added_token(listed[token_id]) for token_id in sorted(listed, key=int)])
    options = {_content(token): token for token in listed.values()}
    named = [settings[name] for name in _NAMED_TOKENS if settings.get(name)]
    backend.add_tokens([_added_token(options.get(_content(token), token), special=True) for token in named])
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for name in _FURTHER_TOKENS:
        group = settings.get(name) or []
        further = group.values() if isinstance(group, dict) else group
        backend.add_tokens([_added_token(token, special=True) for token in further if _content(token) not in known])


def _added_token(token: Any, *, special: bool | None = None) -> tokenizers.AddedToken:
    options = {name: token[name] for name in _TOKEN_OPTIONS if name in token} if isinstance(token, dict) else {}
    if special is not None:
        options["special"] = special
    return tokenizers.AddedToken(_content(token), **options)
