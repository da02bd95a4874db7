"""The names that llama.cpp has for the rules by which byte-level tokenizers split a text into words.

A `tokenizer.json` has the rules themselves. Each row here is a rule and the name of it; a rule without a name can't be
written, since llama.cpp would split otherwise.
"""

from collections.abc import Iterator
from typing import Any

from ....protocol.errors import ConfigError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD, _SIGNS = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_SIGNS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_WITHOUT_CONTRACTIONS = rf"{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_SIGNS_AND_SLASHES}|{_SPACES}"
_GPT4O = rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SIGNS_AND_SLASHES}|{_SPACES}"
_DIGITS = "each digit by itself"
_GPT2 = "as GPT-2"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
    "[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

# By the rules, one after the other, and by whether a word that is a token is taken whole.
_NAMES = {
    ((_GPT2,), False): "gpt-2",
    ((_DIGITS, _GPT2), False): "smollm",
    ((_QWEN2,), False): "qwen2",
    ((_QWEN35,), False): "qwen35",
    ((_WITHOUT_CONTRACTIONS,), False): "ufakzeka",
    ((_LLAMA3,), True): "llama-bpe",
    ((_LLAMA3,), False): "dbrx",
    ((_TEKKEN,), True): "tekken",
    ((_GPT4O,), False): "gpt-4o",
    (_DEEPSEEK3, False): "deepseek-v3",
}


def pre_tokenizer_name(tokenizer: dict[str, Any]) -> str:
    """What llama.cpp calls the rules of a `tokenizer.json`."""
    rules = tuple(_rules(tokenizer["pre_tokenizer"]))
    name = _NAMES.get((rules, bool(tokenizer["model"].get("ignore_merges"))))
    if name is None:
        raise ConfigError(
            "The model's tokenizer splits texts by rules that llama.cpp has no name for "
            f"({' then '.join(rules) or 'none'}), so it is not written as GGUF."
        )
    return name


def _rules(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if kind == "Sequence":
        for each in node["pretokenizers"]:
            yield from _rules(each)
    elif kind == "ByteLevel":
        if node.get("use_regex", True):
            yield _GPT2
        if node.get("add_prefix_space"):
            yield "a space first"
    elif kind == "Digits" and node.get("individual_digits"):
        yield _DIGITS
    elif kind == "Split" and node.get("behavior") == "Isolated" and not node.get("invert"):
        yield str(node["pattern"].get("Regex") or node["pattern"].get("String"))
    else:
        yield str(kind)
