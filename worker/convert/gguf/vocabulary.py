"""The vocabulary of a GGUF file, from the `tokenizer.json` and `tokenizer_config.json` of a model.

    gpt2    BPE over bytes, with its merges, and the name of the rules by which texts are split into words
    llama   BPE of SentencePiece, with scores instead of merges: the token with the higher score is merged first

Kinds of tokens, scores and special ids are those that llama.cpp's own converter writes.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.files.model_file import read_model_json, read_model_settings, read_model_text, values_of
from .check_expressible import inexpressible
from .gguf_file import Value
from .pre_tokenizers import pre_tokenizer_name

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
# Tokens that some tokenizers forget to mark as special.
_LOOKS_SPECIAL = re.compile(r"<pad>|<mask>|<2mass>|\[@BOS@\]|<\|.*\|>|<｜.*｜>|<unused.*>", re.DOTALL)
_SPACE = "▁"
_PADDING_SCORE, _ADDED_SCORE = -10_000.0, -1_000.0
_IDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


def vocabulary_metadata(folder: Path, model_folder: Path, size: int) -> dict[str, Value]:
    """The vocabulary of the tokenizer in `folder`, padded to the `size` of the model's embedding."""
    path = folder / "tokenizer.json"
    tokenizer = read_model_json(path)
    with values_of(path):
        if tokenizer["model"]["type"] != "BPE":
            raise inexpressible(f"its tokenizer is of the kind {tokenizer['model']['type']}, and only BPE is written")
        is_of_bytes = "ByteLevel" in _kinds(tokenizer.get("pre_tokenizer"))
        tokens, kinds = _tokens(tokenizer, size)
        found = _of_bytes(tokenizer) if is_of_bytes else _of_sentencepiece(tokenizer, tokens)
        text: dict[str, Value] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
        settings = read_model_settings(folder / "tokenizer_config.json")
        templates = _templates(folder, settings)
        return {**found, **text, **_special(tokenizer, settings, model_folder, str(templates or "")), **templates}


def _kinds(node: Any) -> Iterator[str]:
    """The types of a tokenizer's part, and of the members if it is a sequence."""
    for each in (node or {}).get("pretokenizers") or (node or {}).get("normalizers") or [node or {}]:
        yield str(each.get("type"))


def _tokens(tokenizer: dict[str, Any], size: int) -> tuple[list[str], list[int]]:
    model = tokenizer["model"]
    named = {number: (text, _NORMAL) for text, number in model["vocab"].items()}
    if model.get("byte_fallback"):
        named = {n: (text, _BYTE if _BYTE_TOKEN.fullmatch(text) else kind) for n, (text, kind) in named.items()}
    for added in tokenizer.get("added_tokens") or []:
        text = added["content"]
        is_special = added.get("special") or _LOOKS_SPECIAL.fullmatch(text)
        # Added words are compared with the text itself, in which spaces are plain.
        named[added["id"]] = (text, _CONTROL) if is_special else (text.replace(_SPACE, " "), _USER_DEFINED)
    if (unknown := model.get("unk_token")) is not None:
        named[model["vocab"][unknown]] = (unknown, _UNKNOWN)
    if (last := max(named, default=-1)) >= size:
        raise ConfigError(
            f"The tokenizer has a token {last:,}, and the model's embedding {size:,} rows. Give the model's own."
        )
    tokens = [named.get(number, (f"[PAD{number}]", _UNUSED)) for number in range(size)]
    return [text for text, _ in tokens], [kind for _, kind in tokens]


def _of_bytes(tokenizer: dict[str, Any]) -> dict[str, Value]:
    # Byte tokens write spaces as Ġ, so a literal space in a merge would be taken as the separator.
    merges = [" ".join(half.replace(" ", "Ġ") for half in pair) for pair in _pairs(tokenizer)]
    found: dict[str, Value] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre_tokenizer_name(tokenizer)}
    return found | ({"tokenizer.ggml.merges": merges} if merges else {})


def _pairs(tokenizer: dict[str, Any]) -> list[list[str]]:
    return [each.split(" ", 1) if isinstance(each, str) else each for each in tokenizer["model"]["merges"]]


def _of_sentencepiece(tokenizer: dict[str, Any], tokens: list[str]) -> dict[str, Value]:
    if not tokenizer["model"].get("byte_fallback"):
        raise inexpressible("its tokenizer has no tokens for bytes, without which llama.cpp can't use it")
    ranks: dict[str, int] = {}
    for pair in _pairs(tokenizer):
        ranks.setdefault("".join(pair), len(ranks))
    # Tokens that aren't the result of a merge need no score.
    scores = [float(-ranks.get(token, len(ranks))) for token in tokens]
    for added in tokenizer.get("added_tokens") or []:
        scores[added["id"]] = _ADDED_SCORE
    names = set(tokenizer["model"]["vocab"]) | {added["content"] for added in tokenizer.get("added_tokens") or []}
    scores = [
        score if token in names or token.replace(" ", _SPACE) in names else _PADDING_SCORE
        for token, score in zip(tokens, scores, strict=True)
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": _begins_with_space(tokenizer),
    }


def _begins_with_space(tokenizer: dict[str, Any]) -> bool:
    """Whether the tokenizer prepends a space to a text."""
    normalizer, pre_tokenizer = tokenizer.get("normalizer") or {}, tokenizer.get("pre_tokenizer") or {}
    for each in normalizer.get("normalizers") or [normalizer]:
        if each.get("type") == "Prepend" and each.get("prepend") == _SPACE:
            return True
    for each in pre_tokenizer.get("pretokenizers") or [pre_tokenizer]:
        if each.get("type") == "Metaspace":
            scheme = each.get("prepend_scheme")
            return scheme in ("always", "first") if scheme is not None else bool(each.get("add_prefix_space", True))
    return False


# --- special tokens and templates ------------------------------------------------------------------------------------


def _special(
    tokenizer: dict[str, Any], settings: dict[str, Any], model_folder: Path, templates: str
) -> dict[str, Value]:
    ids = dict(tokenizer["model"]["vocab"])
    ids |= {added["content"]: added["id"] for added in tokenizer.get("added_tokens") or []}
    config = read_model_settings(model_folder / "config.json")
    found: dict[str, Value] = {}
    for name, key in _IDS.items():
        number = ids.get(_content(settings.get(f"{name}_token")), config.get(f"{name}_token_id"))
        if type(number) is int:
            found[f"tokenizer.ggml.{key}_token_id"] = number
    before, after = _around(tokenizer)
    bos = ids.get(_content(settings.get("bos_token")))
    if settings.get("add_bos_token") and bos is not None and before[:1] != [bos]:  # some leave it to their class
        before = [bos, *before]
    named_end = found.get("tokenizer.ggml.eos_token_id")
    for role, side, added in (("bos", "before", before), ("eos", "behind", after)):
        found |= _added(role, side, added, found, templates)
    ends = read_model_settings(model_folder / "generation_config.json").get("eos_token_id")
    ends = [named_end, *(ends if isinstance(ends, list) else [])]
    others = dict.fromkeys(end for end in ends if type(end) is int and end != found.get("tokenizer.ggml.eos_token_id"))
    return found | {f"tokenizer.ggml.{name}_token_id": end for name, end in zip(("eot", "eom"), others)}


def _added(role: str, side: str, added: list[int], found: dict[str, Value], templates: str) -> dict[str, Value]:
    """The token that stands on one side of every text. GGUF knows one, under the name of the begin or end token."""
    if len(added) > 1:
        if templates:  # which write these tokens themselves; only a bare text lacks them
            return {f"tokenizer.ggml.add_{role}_token": False}
        raise inexpressible(f"its tokenizer puts {len(added)} tokens {side} a text, and GGUF has room for one")
    key = f"tokenizer.ggml.{role}_token_id"
    if added and found.get(key, added[0]) != added[0] and f"{role}_token" in templates:
        raise inexpressible(
            f"its tokenizer puts a token {side} a text that is not {role}_token, which its chat template writes"
        )
    flag: dict[str, Value] = {f"tokenizer.ggml.add_{role}_token": bool(added)}
    return flag | ({key: added[0]} if added else {})


def _content(token: Any) -> str:
    return str(token.get("content")) if isinstance(token, dict) else str(token)


def _around(tokenizer: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The tokens that the post-processor adds before and after a text."""
    node = tokenizer.get("post_processor") or {}
    before: list[int] = []
    after: list[int] = []
    for each in node.get("processors") or [node]:
        if each.get("type") == "TemplateProcessing":
            side = before
            for part in each["single"]:
                if "Sequence" in part:
                    side = after
                else:
                    name = part["SpecialToken"]["id"]
                    side += each["special_tokens"][name]["ids"]
        elif each.get("type") in ("BertProcessing", "RobertaProcessing"):
            before, after = [each["cls"][1], *before], [*after, each["sep"][1]]
    return before, after


def _templates(folder: Path, settings: dict[str, Any]) -> dict[str, Value]:
    files = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    named = {path.stem: read_model_text(path) for path in files}
    if (folder / "chat_template.jinja").is_file():
        named["default"] = read_model_text(folder / "chat_template.jinja")
    else:
        given = settings.get("chat_template") or read_model_settings(folder / "chat_template.json").get("chat_template")
        given = [{"name": "default", "template": given}] if isinstance(given, str) else given or []
        named |= {each["name"]: each["template"] for each in given}
    found: dict[str, Value] = {"tokenizer.chat_template": named.pop("default")} if "default" in named else {}
    # Names of keys consist of letters, digits and underscores.
    others = {re.sub(r"[^A-Za-z0-9]", "_", name): template for name, template in named.items()}
    found |= {f"tokenizer.chat_template.{name}": template for name, template in others.items()}
    return found | ({"tokenizer.chat_templates": list(others)} if others else {})
