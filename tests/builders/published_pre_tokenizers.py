"""The normalizers and pre-tokenizers of published tokenizer.json files, as they stand there, by llama.cpp's names."""

from typing import Any

Stage = dict[str, Any]


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
