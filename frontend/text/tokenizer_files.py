"""Reads a tokenizer's files: `tokenizer.json`, and the tokens added by the JSON files next to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.model_file import read_model_file, read_model_settings, values_of
from .chat_templates import text_value
from .incremental import Decoding, panics_as

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FURTHER_TOKENS = ("additional_special_tokens", "extra_special_tokens")
_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class _Model(msgspec.Struct):
    merges: msgspec.Raw = msgspec.Raw()


class _File(msgspec.Struct):
    model: _Model


def read_settings(folder: Path) -> dict[str, Any]:
    settings = read_model_settings(folder / "special_tokens_map.json")
    return settings | read_model_settings(folder / "tokenizer_config.json")


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    return _read(folder, lambda content: content)


def read_decoding(folder: Path) -> Decoding:
    """Read what decoding needs. Merges are for encoding alone, and would take half of the time."""
    backend = _read(folder, _without_merges)
    with values_of(folder / "tokenizer_config.json"):
        add_missing_tokens(backend, read_settings(folder))
    with panics_as(ConfigError, f"{folder / 'tokenizer.json'} can't be used"):
        return Decoding(backend)


def _without_merges(content: bytes) -> bytes:
    try:
        merges = bytes(msgspec.json.decode(content, type=_File).model.merges)
    except msgspec.DecodeError:  # the library says what is wrong
        return content
    return content.replace(merges, b"[]") if merges.startswith(b"[") else content


def _read(folder: Path, needed: Callable[[bytes], bytes]) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        content = read_model_file(path)
    except FileNotFoundError:
        raise ModelNotFoundError(f"There is no tokenizer.json in {folder}.") from None
    try:
        with panics_as(ConfigError, "its reader ended"):
            backend = tokenizers.Tokenizer.from_buffer(needed(content))
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


def lower_case_first(backend: tokenizers.Tokenizer) -> None:
    """Lower a text's case before all else that the tokenizer makes of it."""
    normalizers: Any = tokenizers.normalizers
    own = backend.normalizer
    lowered: Any = normalizers.Lowercase()
    backend.normalizer = lowered if own is None else normalizers.Sequence([lowered, own])


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
