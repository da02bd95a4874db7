"""`Tokenizer`: text to token ids and back, special tokens, and the model's chat template.

`tokenizer_files.py` reads `tokenizer.json` and its companions, with the `tokenizers` library.

Text is decoded exactly as the tokens spell it: a stream can't take a space back, so there is no
`clean_up_tokenization_spaces`. This never imports transformers.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_settings, values_of
from ..media.sources.parts import bare_media, has_media, texts_alone
from ..requests.plain_types import well_formed
from .chat_templates import read_chat_template
from .end_tokens import listed
from .incremental import Decoding, panics_as
from .tokenizer_files import add_missing_tokens, lower_case_first, named_tokens, read_backend, read_settings
from .vocabulary import SEGMENTER_FILE


class Tokenizer:
    """`from_pretrained` takes a bundled name, a folder or a hub id."""

    def __init__(self, folder: str | os.PathLike[str], model_folder: str | os.PathLike[str] | None = None) -> None:
        """`folder` has tokenizer.json; `model_folder` has the model's own JSON files, if they are elsewhere."""
        _check_path("folder", folder)
        _check_path("model_folder", folder if model_folder is None else model_folder)
        folder = Path(folder)
        model_folder = Path(model_folder or folder)
        settings = read_settings(folder)
        self.backend = read_backend(folder)
        with values_of(folder / "tokenizer_config.json"):
            if (folder / SEGMENTER_FILE).is_file():
                from .vocabulary.segmenter import attach_segmenter

                attach_segmenter(self.backend, folder, settings)
            add_missing_tokens(self.backend, settings)
            if read_model_settings(model_folder / "sentence_bert_config.json").get("do_lower_case") is True:
                lower_case_first(self.backend)
            self.special_tokens = named_tokens(settings)
            self.chat_template = read_chat_template(folder, settings)
        with panics_as(ConfigError, f"{folder / 'tokenizer.json'} can't be used"):
            self.decoding = Decoding(self.backend)
            first = self.backend.encode("").ids[:1]
        self.bos_token_id = self._named_id("bos_token")
        self.pad_token_id = self._named_id("pad_token")
        self.end_tokens = self._end_tokens(model_folder, folder)
        self._adds_bos = self.bos_token_id is not None and first == [self.bos_token_id]
        # Some tokenizer.json files leave the BOS to the class named in the settings.
        self._prepends_bos = bool(settings.get("add_bos_token") and self.bos_token) and not self._adds_bos

    @classmethod
    def from_pretrained(cls, path_or_id: str | os.PathLike[str], revision: str | None = None) -> "Tokenizer":
        _check_path("path_or_id", path_or_id)
        if revision is not None:
            _check_text("revision", revision)
        from ..models.model_files import find_tokenizer  # a tree's processes know the folder

        folder = find_tokenizer(path_or_id, revision)
        # A converted tokenizer is in the cache; the files with the end tokens are next to the original.
        original = Path(path_or_id)
        return cls(folder, original if original.is_dir() else None)

    # --- ids -----------------------------------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """The size without added tokens; `len()` counts those, too."""
        return self.backend.get_vocab_size(with_added_tokens=False)

    def __len__(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        return self.special_tokens.get("pad_token")

    @property
    def eos_token_ids(self) -> list[int]:
        return list(self.end_tokens)

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's own, otherwise the model's first."""
        own = self._named_id("eos_token")
        return own if own is not None else next(iter(self.eos_token_ids), None)

    def token_to_id(self, token: str) -> int | None:
        _check_text("token", token)
        return self.backend.token_to_id(well_formed(token))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is special, and never written as text."""
        added = self.backend.get_added_tokens_decoder().get(token_id)
        return added is not None and added.special

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)

    def _end_tokens(self, model_folder: Path, folder: Path) -> dict[int, str]:
        """Every token that ends an answer: generation_config.json's, otherwise config.json's, and the tokenizer's."""
        config = read_model_settings(model_folder / "config.json")
        inner = config.get("text_config")
        candidates = (
            ("generation_config.json", read_model_settings(model_folder / "generation_config.json")),
            ("config.json", config),
            ("config.json: text_config", inner if isinstance(inner, dict) else {}),
        )
        found: dict[int, str] = {}
        for name, settings in candidates:
            if (value := settings.get("eos_token_id")) is not None:
                found = listed(value, f"{model_folder / name}: eos_token_id")
                break
        own = self._named_id("eos_token")
        return found if own is None or own in found else {**found, own: f"{folder}: eos_token={self.eos_token!r}"}

    # --- text to ids ---------------------------------------------------------------------------------------------

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Encode many texts at once, on as many threads as the process may use."""
        found = self._encodings(texts, add_special_tokens)
        if not add_special_tokens or (bos := self.bos_token_id) is None:
            return found
        return [self._with_one_bos(ids, bos) for ids in found]

    def encode_as_is(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts with the special tokens that belong around each, even one that begins with their text."""
        found = self._encodings(texts, True)
        return [[self.bos_token_id, *ids] for ids in found] if self._prepends_bos else found  # type: ignore[list-item]

    def _encodings(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        _check_texts(texts)
        _check_flag("add_special_tokens", add_special_tokens)
        with panics_as(RequestError, "The text can't be tokenized"):
            try:
                encodings = self.backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
            except TypeError:
                texts = [well_formed(text) for text in texts]
                encodings = self.backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def _with_one_bos(self, ids: list[int], bos: int) -> list[int]:
        """Don't add a second BOS to a text that begins with one, like a rendered chat template."""
        if self._prepends_bos and ids[:1] != [bos]:
            return [bos, *ids]
        return ids[1:] if self._adds_bos and ids[1:2] == [bos] else ids

    # --- ids to text ---------------------------------------------------------------------------------------------

    def decode(
        self,
        ids: int | Iterable[int],
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> str:
        _check_flag("skip_special_tokens", skip_special_tokens)
        _check_flag("spaces_between_special_tokens", spaces_between_special_tokens)
        with _token_ids_only(), panics_as(RequestError, "The tokens have no text"):
            ids = [ids] if isinstance(ids, int) else list(map(index, ids))
            if spaces_between_special_tokens:
                return self.decoding.text(ids, skip_special_tokens=skip_special_tokens)
            decoder = self.decoding.decoder(
                skip_special_tokens=skip_special_tokens, spaces_between_special_tokens=False
            )
            return decoder.feed(ids) + decoder.flush()

    def decode_token(self, token_id: int) -> str:
        """Decode one token by itself, with its space, showing special ones; a part of a character is U+FFFD."""
        with _token_ids_only():
            return self.decoding.token(index(token_id))

    # --- conversations -------------------------------------------------------------------------------------------

    def apply_chat_template(
        self,
        messages: Sequence[Any],
        tokenize: bool = False,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any] | Callable[..., Any]] | None = None,
        chat_template: str | None = None,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        sees: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """The text (or ids) of one conversation, or a list of them for a list of conversations.

        Pictures and videos become placeholders, unopened. `sees` says whether the model accepts any; None: check
        whether the template has placeholders.
        """
        from .template_process import renderer_of  # few processes need it, and not at their start

        flags = {"tokenize": tokenize, "add_generation_prompt": add_generation_prompt}
        for name, flag in {**flags, "continue_final_message": continue_final_message}.items():
            _check_flag(name, flag)
        _check_documents(documents)

        text_of = partial(
            renderer_of(self),
            self.template(chat_template, has_tools=bool(tools)),
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            special_tokens=self.special_tokens,
            arguments=kwargs,
        )

        is_batch = isinstance(messages, (list, tuple)) and messages and isinstance(messages[0], (list, tuple))
        texts = [_rendered(conversation, text_of, sees) for conversation in (messages if is_batch else [messages])]
        found = [self.encode(text, add_special_tokens=False) for text in texts] if tokenize else texts
        return found if is_batch else found[0]

    def template(self, chosen: str | None = None, *, has_tools: bool = False) -> str:
        """The template to use: one of the model's by name, the given text or file, or the model's own choice."""
        from .chat import template_text

        named = self.chat_template if isinstance(self.chat_template, dict) else {"default": self.chat_template}
        if chosen is not None:
            _check_text("chat_template", chosen)
            return named.get(chosen) or template_text(chosen)
        own = (named.get("tool_use") if has_tools else None) or named.get("default")
        if own is not None:
            return own
        if isinstance(self.chat_template, dict):
            raise RequestError(f"Choose a chat template by name with chat_template=…: {', '.join(sorted(named))}.")
        raise RequestError(
            "This model has no chat template. Give one with chat_template=… (text or file), or use generate() with the "
            "whole prompt."
        )


# --- arguments -------------------------------------------------------------------------------------------------------


# The names in FastDeploy's scripts.
ErnieBotTokenizer = Ernie4_5Tokenizer = Tokenizer


def _rendered(conversation: Any, text_of: Callable[..., str], sees: bool | None) -> str:
    if sees is not None or not isinstance(conversation, (list, tuple)) or not has_media(conversation):
        return text_of(conversation, sees=bool(sees))
    text = text_of(bare_media(conversation), sees=True)
    # A template that ignores media would make the model answer without seeing them.
    if text == text_of(texts_alone(conversation), sees=True):
        raise RequestError("This model's chat template has no placeholders for pictures and videos: it accepts none.")
    return text


@contextmanager
def _token_ids_only() -> Iterator[None]:
    """Wrap calls that take ids: turns errors about other values into a clear message."""
    try:
        yield
    except (TypeError, OverflowError) as error:
        raise RequestError("Token ids must be whole numbers from 0 on, such as encode() returns.") from error


def _check_texts(texts: Any) -> None:
    if not isinstance(texts, (list, tuple)):
        raise RequestError(f"texts must be a list of str, not {_type(texts)}.")
    for text in texts:
        _check_text("text", text)


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise RequestError(f"{name} must be a str, not {_type(text)}.")


def _check_path(name: str, value: Any) -> None:
    if not isinstance(value, (str, os.PathLike)):
        raise RequestError(f"{name} must be a str or a path, not {_type(value)}.")


def _check_documents(documents: Any) -> None:
    is_list = documents is None or isinstance(documents, (list, tuple))
    if not is_list or not all(isinstance(each, Mapping) for each in documents or ()):
        raise RequestError(f"documents must be a list of dicts, not {shown(documents)}.")


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be True or False, not {_type(value)}.")


def _type(value: Any) -> str:
    return type(value).__name__
