"""Converts a folder with a SentencePiece model or a tiktoken file into one with a `tokenizer.json`.

Special tokens, including those around a text, and templates are copied from transformers' settings.
"""

import fnmatch
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from ....protocol.files.model_file import read_model_settings, values_of
from . import SEGMENTER_FILE
from .sentencepiece_model import read_sentencepiece
from .sentencepiece_tokenizer import needs_segmenter, refuse_what_differs, sentencepiece_tokenizer
from .tiktoken_tokenizer import is_tiktoken, tiktoken_tokenizer

# Files of either kind, the usual name first.
NAMES = ("tokenizer.model", "tiktoken.model", "*.tiktoken", "tokenizer.model*", "spiece.model", "*.spm")
_TEMPLATE_FILES = ("chat_template.json", "chat_template.jinja")
_TEMPLATES = "additional_chat_templates"
_SETTINGS, _ADDED = "tokenizer_config.json", "added_tokens.json"
# For these, transformers' own code gives the pieces other ids than the file does, or changes the text first.
_OTHER_IDS = frozenset(
    (
        *("AlbertTokenizer", "BarthezTokenizer", "BigBirdTokenizer", "CamembertTokenizer", "DebertaV2Tokenizer"),
        *("FNetTokenizer", "LayoutXLMTokenizer", "M2M100Tokenizer", "MBart50Tokenizer", "MBartTokenizer"),
        *("MarianTokenizer", "NllbTokenizer", "PegasusTokenizer", "PLBartTokenizer", "ReformerTokenizer"),
        *("RemBertTokenizer", "SeamlessM4TTokenizer", "Speech2TextTokenizer", "T5Tokenizer", "UdopTokenizer"),
        *("XGLMTokenizer", "XLMRobertaTokenizer", "XLNetTokenizer"),
    )
)


def readable(folder: Path) -> Path | None:
    """The file that `write_tokenizer` reads; None if there is none, or if other files matter, too."""
    if has_other_ids(folder):
        return None
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    found = [name for pattern in NAMES for name in files if fnmatch.fnmatchcase(name, pattern)]
    return folder / found[0] if found else None


def has_other_ids(folder: Path) -> bool:
    name = read_model_settings(folder / _SETTINGS).get("tokenizer_class")
    return isinstance(name, str) and name.removesuffix("Fast") in _OTHER_IDS


def write_tokenizer(path: Path, target: Path) -> None:
    """Write the tokenizer of the file `path` into the folder `target`."""
    folder = path.parent
    settings = {**read_model_settings(folder / "special_tokens_map.json"), **read_model_settings(folder / _SETTINGS)}
    with values_of(folder / _SETTINGS):
        backend, defaults = _read(path, settings, target)
    # A null in a settings file is left out on purpose.
    settings = {**{name: token for name, token in defaults.items() if name not in settings}, **settings}
    with values_of(folder / _ADDED):
        _add_tokens(backend, read_model_settings(folder / _ADDED))
    with values_of(folder / _SETTINGS):
        add_begin_and_end(backend, settings)
    backend.save(str(target / "tokenizer.json"))
    (target / _SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    _copy_templates(folder, target)


def _read(path: Path, settings: Mapping[str, Any], target: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """Read the tokenizer, with the special tokens that apply if the settings name none."""
    if is_tiktoken(path):
        backend, end = tiktoken_tokenizer(path, settings)
        return backend, {"eos_token": end} if end and backend.token_to_id(end) is not None else {}
    model = read_sentencepiece(path, settings)
    refuse_what_differs(model, path)
    if needs_segmenter(model):
        shutil.copyfile(path, target / SEGMENTER_FILE)
    return sentencepiece_tokenizer(model, settings), model.special_tokens()


def _add_tokens(backend: tokenizers.Tokenizer, ids: Mapping[str, int]) -> None:
    """Add the tokens of added_tokens.json, where older tokenizers list tokens added to their vocabulary."""
    for token, token_id in sorted(ids.items(), key=lambda entry: entry[1]):
        if backend.token_to_id(token) is None and token_id == backend.get_vocab_size():
            backend.add_tokens([tokenizers.AddedToken(token, normalized=False)])


def add_begin_and_end(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Add begin and end tokens as transformers does: only if `add_bos_token` and `add_eos_token` say so."""
    begin = _asked_for(backend, settings, "bos_token")
    end = _asked_for(backend, settings, "eos_token")
    template = " ".join([token for token in (begin and f"{begin}:0", "$A:0", end and f"{end}:0") if token])
    special = [(token, backend.token_to_id(token)) for token in (begin, end) if token]
    if special:
        backend.post_processor = TemplateProcessing(single=template.split(" "), special_tokens=special)


def _asked_for(backend: tokenizers.Tokenizer, settings: Mapping[str, Any], name: str) -> str | None:
    token = settings.get(name)
    content = token["content"] if isinstance(token, dict) else token
    is_there = settings.get(f"add_{name}") and content and backend.token_to_id(content) is not None
    return content if is_there else None


def _copy_templates(folder: Path, target: Path) -> None:
    for name in _TEMPLATE_FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    if (folder / _TEMPLATES).is_dir():
        shutil.copytree(folder / _TEMPLATES, target / _TEMPLATES)
