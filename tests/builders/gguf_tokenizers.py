"""The metadata that llama.cpp's `convert_hf_to_gguf.py` makes of a tokenizer, from the same files.

Below stand the normalizers and pre-tokenizers of published tokenizer.json files, by llama.cpp's names.
"""

import json
import re
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer

from penstock.frontend.text.gguf import write_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer as TextTokenizer
from penstock.frontend.text.vocabulary.sentencepiece_model import read_sentencepiece

from .sentencepiece_models import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

_TASKS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask"}
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>", re.DOTALL)
Metadata = dict[str, Any]
Stage = dict[str, Any]


def from_tokenizer_json(folder: Path, pre: str | None, vocab_size: int = 0, model: str = "gpt2") -> Metadata:
    """As `_set_vocab_gpt2`; the vocabulary is filled up to `vocab_size`."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    state = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["id"]: token for token in state["added_tokens"]}
    named = {at: token for token, at in backend.get_vocab(with_added_tokens=True).items()}
    tokens, types = [], []
    for at in range(max(vocab_size, max(named) + 1)):
        if at not in named:
            tokens.append(f"[PAD{at}]")
            types.append(UNUSED)
        elif at in added:
            is_special = added[at]["special"] or _looks_special(named[at])
            tokens.append(named[at] if is_special else named[at].replace("▁", " "))
            types.append(CONTROL if is_special else USER_DEFINED)
        else:
            tokens.append(named[at])
            types.append(NORMAL)
    metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        **({} if pre is None else {"tokenizer.ggml.pre": pre}),
        **_special(folder, backend.token_to_id),
    }
    if "merges" in state["model"]:
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    return metadata


def from_bert(folder: Path) -> Metadata:
    """As `BertModel.set_vocab`."""
    metadata = from_tokenizer_json(folder, "jina-v2-en", model="bert")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    for at, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind != CONTROL:
            tokens[at] = token[2:] if token.startswith("##") else f"▁{token}"
    return metadata


def from_sentencepiece(folder: Path, vocab_size: int = 0) -> Metadata:
    """As `_set_vocab_sentencepiece`, of the folder's tokenizer.model."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    size = max(vocab_size, model.vocab_size())
    tokens = [f"[PAD{at}]" for at in range(size)]
    scores = [-10000.0] * size
    types = [UNUSED] * size
    kinds = {UNKNOWN: model.is_unknown, CONTROL: model.is_control, UNUSED: model.is_unused, BYTE: model.is_byte}
    for at in range(model.vocab_size()):
        tokens[at], scores[at] = model.id_to_piece(at), model.get_score(at)
        types[at] = next((kind for kind, holds in kinds.items() if holds(at)), NORMAL)
    for number, token in _settings(folder).get("added_tokens_decoder", {}).items():
        at, is_special = int(number), token.get("special") or _looks_special(token["content"])
        tokens[at] = token["content"] if is_special else token["content"].replace("▁", " ")
        scores[at], types[at] = -1000.0, CONTROL if is_special else USER_DEFINED
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        **_special(folder, lambda token: tokens.index(token) if token in tokens else None),
    }


def from_t5(folder: Path) -> Metadata:
    """As `T5Model.set_vocab`: what stands in the model's description of its normalizer goes along."""
    model = read_sentencepiece(folder / "tokenizer.model", {})
    return {
        **from_sentencepiece(folder),
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.add_space_prefix": model.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": model.remove_extra_whitespaces,
        "tokenizer.ggml.precompiled_charsmap": list(model.charsmap),
    }


def with_templates(metadata: Metadata, **templates: str) -> Metadata:
    """`default`, and others by name."""
    found = {f"tokenizer.chat_template.{name}": text for name, text in templates.items() if name != "default"}
    names = {"tokenizer.chat_templates": [name for name in templates if name != "default"]} if found else {}
    default = {"tokenizer.chat_template": templates["default"]} if "default" in templates else {}
    return {**metadata, **names, **default, **found}


def _looks_special(token: str) -> bool:
    return token in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or bool(_LOOKS_SPECIAL.fullmatch(token))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _special(folder: Path, token_to_id: Any) -> Metadata:
    """As `gguf.SpecialVocab`: BERT's [CLS] begins a text, and its [SEP] ends one."""
    settings = _settings(folder)
    names = {f"{task}_token": settings.get(f"{task}_token") for task in (*_TASKS, "cls")}
    names["bos_token"] = names["bos_token"] or names["cls_token"]
    names["eos_token"] = names["eos_token"] or names["sep_token"]
    found: Metadata = {}
    for task, key in _TASKS.items():
        token = names[f"{task}_token"]
        at = None if token is None else token_to_id(token if isinstance(token, str) else token["content"])
        if at is not None:
            found[f"tokenizer.ggml.{key}_token_id"] = at
    for task in ("bos", "eos"):
        if isinstance(settings.get(f"add_{task}_token"), bool):
            found[f"tokenizer.ggml.add_{task}_token"] = settings[f"add_{task}_token"]
    return found


def read(folder: Path, metadata: Metadata) -> TextTokenizer:
    """The tokenizer that is made of a file's metadata."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(metadata, folder)
    return TextTokenizer(folder)


def _split(pattern: str) -> Stage:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _bytes(*, use_regex: bool = False) -> Stage:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _digits(*, individual: bool) -> Stage:
    return {"type": "Digits", "individual_digits": individual}


def _sequence(*stages: Stage) -> Stage:
    return {"type": "Sequence", "pretokenizers": list(stages)}


_PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
_NFC = {"type": "NFC"}

# fmt: off
PRE_TOKENIZERS: dict[str, Stage] = {
    "gpt-2": _bytes(use_regex=True),
    "mpt": _bytes(use_regex=True),
    "llama-bpe": _sequence(_split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "qwen2": _sequence(_split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "qwen35": _sequence(_split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "gpt-4o": _sequence(_split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "tekken": _sequence(_split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "deepseek-v3": _sequence(_split(r"\p{N}{1,3}"), _split("[一-龥\u3040-ゟ゠-ヿ]+"), _split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), _bytes()),  # noqa: E501
    "spark2_5": _sequence(_split(r"\p{N}{1,3}"), _split("[一-龥\u3040-ゟ゠-ヿ]+"), _split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+"), _digits(individual=True), _bytes()),  # noqa: E501
    "seed-coder": _sequence(_split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), _bytes()),  # noqa: E501
    "deepseek-coder": _sequence(_split("[\r\n]"), _split(r"\s?\p{L}+"), _split(r"\s?\p{P}+"), _split("[一-龥ࠀ-一가-\ud7ff]+"), _digits(individual=True), _bytes()),  # noqa: E501
    "bailingmoe": _sequence(_split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
    "bloom": _sequence(_split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), _bytes()),
    "smollm": _sequence(_digits(individual=True), _bytes(use_regex=True)),
    "command-r": _sequence(_digits(individual=True), _bytes(use_regex=True)),
    "falcon": _sequence(_PUNCTUATION, _bytes(use_regex=True), _digits(individual=False), _split("[0-9][0-9][0-9]")),
    "falcon3": _sequence(_PUNCTUATION, _bytes(use_regex=True), _digits(individual=True)),
    "ufakzeka": _sequence(_split(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), _bytes()),  # noqa: E501
}
# fmt: on
NORMALIZERS = dict.fromkeys(("mpt", "qwen2", "qwen35", "command-r"), _NFC)
# A word that is a token is one, whatever the merges say.
IGNORE_MERGES = ("llama-bpe", "tekken", "falcon3")
