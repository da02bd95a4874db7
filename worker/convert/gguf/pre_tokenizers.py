"""llama.cpp's names for the rules by which byte-level tokenizers split a text into words.

A `tokenizer.json` has the rules themselves. Each row here is a rule and its name; a rule without a name can't be
written, since llama.cpp would split differently.
"""

from collections.abc import Iterator
from typing import Any

from ....protocol.files.gguf import word_patterns as patterns
from .check_expressible import inexpressible

_DIGITS = "each digit by itself"
_GPT2 = "as GPT-2"
# DeepSeek-V3's tokenizer.json has the literal characters.
_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    patterns.DEEPSEEK_3.replace(r"\r\n", "\r\n"),
)

# By the sequence of rules, and by whether a word that is a token is kept whole.
_NAMES = {
    ((_GPT2,), False): "gpt-2",
    ((_DIGITS, _GPT2), False): "smollm",
    ((patterns.QWEN_2,), False): "qwen2",
    ((patterns.QWEN_3_5,), False): "qwen35",
    ((patterns.UFAKZEKA,), False): "ufakzeka",
    ((patterns.LLAMA_3,), True): "llama-bpe",
    ((patterns.LLAMA_3,), False): "dbrx",
    ((patterns.TEKKEN,), True): "tekken",
    ((patterns.GPT_4O,), False): "gpt-4o",
    (_DEEPSEEK_3, False): "deepseek-v3",
}


def pre_tokenizer_name(tokenizer: dict[str, Any]) -> str:
    """llama.cpp's name for the rules of a `tokenizer.json`."""
    rules = tuple(_rules(tokenizer["pre_tokenizer"]))
    name = _NAMES.get((rules, bool(tokenizer["model"].get("ignore_merges"))))
    if name is None:
        raise inexpressible(
            f"its tokenizer splits texts by rules that llama.cpp has no name for ({' then '.join(rules) or 'none'})"
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
