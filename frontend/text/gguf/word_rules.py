"""Rules for splitting text into words before bytes are merged, by their names in `tokenizer.ggml.pre`.

A GGUF file has only that name. The rules here are from the tokenizer.json of the model for which a name was introduced,
including its normalizer. The names come from llama.cpp, whose own patterns nearly agree; they are used for models whose
tokenizer.json isn't public.
"""

from collections.abc import Callable
from typing import NamedTuple

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Punctuation

from ....protocol.fields.rules import shown
from ....protocol.files.gguf import word_patterns as patterns
from ..vocabulary.tiktoken_tokenizer import SCHEMES
from .metadata import PREFIX


class WordRule(NamedTuple):
    """Steps are made lazily: a start needs only one of all the rules."""

    steps: Callable[[], list[PreTokenizer]]
    is_composed: bool = False  # text is normalized to NFC first
    ignore_merges: bool = False  # a word that is a token needs no merges
    adds_bos: bool = False  # default if the file has no value
    is_tiktoken: bool = False  # tokens are merged in the order of their ids, whatever merges the file lists


def _split(*found: str) -> Callable[[], list[PreTokenizer]]:
    """Split by patterns, each within the pieces left by the previous ones."""
    return lambda: [*map(_isolated, found), ByteLevel(add_prefix_space=False, use_regex=False)]


def _isolated(pattern: str) -> PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _words_of_gpt_2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _bytes() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=False)


_GPT_2 = WordRule(lambda: [_words_of_gpt_2()])
_COMPOSED_GPT_2 = _GPT_2._replace(is_composed=True)
_DIGITS_AND_GPT_2 = WordRule(lambda: [Digits(individual_digits=True), _words_of_gpt_2()])
_LLAMA_3 = WordRule(_split(patterns.LLAMA_3))
_LLAMA_3_ITSELF = _LLAMA_3._replace(ignore_merges=True, adds_bos=True)
_QWEN_2 = WordRule(_split(patterns.QWEN_2))
_COMPOSED_QWEN_2 = _QWEN_2._replace(is_composed=True)
_GPT_4O = WordRule(_split(patterns.GPT_4O))
_TEKKEN = WordRule(_split(patterns.TEKKEN), ignore_merges=True, adds_bos=True)
_DEEPSEEK_3 = WordRule(_split(r"\p{N}{1,3}", patterns.HAN_AND_KANA, patterns.DEEPSEEK_3))
_BLOOM = WordRule(_split(patterns.BLOOM))
_LING = WordRule(_split(patterns.LING))
_AYA = WordRule(_split(patterns.THREES_FROM_THE_RIGHT, patterns.GPT_4O))


def _falcon() -> list[PreTokenizer]:
    return [
        Punctuation(behavior="contiguous"),
        _words_of_gpt_2(),
        Digits(individual_digits=False),
        _isolated("[0-9][0-9][0-9]"),
    ]


def _falcon_3() -> list[PreTokenizer]:
    return [Punctuation(behavior="contiguous"), _words_of_gpt_2(), Digits(individual_digits=True)]


def _falcon_h1() -> list[PreTokenizer]:
    return [Punctuation(behavior="contiguous"), _isolated(patterns.TEKKEN), _bytes(), _isolated("[0-9]")]


def _deepseek_llm() -> list[PreTokenizer]:
    found = (r"[\r\n]", patterns.DEEPSEEK_LETTERS, patterns.DEEPSEEK_SIGNS, r"\s+$", patterns.DEEPSEEK_HAN)
    return [*map(_isolated, found), Digits(individual_digits=True), _bytes()]


def _deepseek_coder() -> list[PreTokenizer]:
    found = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", patterns.DEEPSEEK_HAN)
    return [*map(_isolated, found), Digits(individual_digits=True), _bytes()]


def _spark() -> list[PreTokenizer]:
    found = (r"\p{N}{1,3}", patterns.HAN_AND_KANA, patterns.SPARK)
    return [*map(_isolated, found), Digits(individual_digits=True), _bytes()]


def _viking() -> list[PreTokenizer]:
    return [_isolated(patterns.BLOOM), Digits(individual_digits=True), _bytes()]


def _superbpe() -> list[PreTokenizer]:
    return [Digits(individual_digits=False), _isolated(patterns.BEFORE_THREES), _bytes()]


def _trinity() -> list[PreTokenizer]:
    threes = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
    return [*map(_isolated, (threes, patterns.ASIAN_SCRIPTS, patterns.DEEPSEEK_3)), _bytes()]


def _chameleon() -> list[PreTokenizer]:
    found = (
        *("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )"),
        *(r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]"),
    )
    return [*map(_isolated, found), _words_of_gpt_2()]


_RULES: dict[WordRule, tuple[str, ...]] = {
    WordRule(_split(r"[\p{P}\$\+<=>\^~\|]+", patterns.GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")): ("default",),
    _LLAMA_3_ITSELF: ("llama3", "llama-v3", "llama-bpe", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    _LLAMA_3._replace(ignore_merges=True): ("glm4", "glm5"),
    _LLAMA_3: ("dbrx", "smaug-bpe", "chatglm-bpe"),
    _QWEN_2: ("deepseek-r1-qwen", "grok-2", "solar-open"),
    _COMPOSED_QWEN_2: ("qwen2", "stablelm2", "hunyuan", "megrez", "kormo", "f2llmv2"),
    WordRule(_split(patterns.QWEN_3_5), is_composed=True): ("qwen35",),
    _GPT_2: (
        *("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code"),
        *("roberta-bpe", "a.x-4.0", "mellum", "exaone4", "jais", "trillion", "granite-docling"),
    ),
    _COMPOSED_GPT_2: ("mpt", "olmo", "modern-bert"),
    _DIGITS_AND_GPT_2: ("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
    _DIGITS_AND_GPT_2._replace(is_composed=True): ("command-r",),
    _GPT_4O: ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "gigachat"),
    _GPT_4O._replace(ignore_merges=True): ("granite-embed-multi-97m",),
    _TEKKEN: ("tekken",),
    WordRule(_falcon): ("falcon",),
    WordRule(_falcon_3, ignore_merges=True, adds_bos=True): ("falcon3",),
    WordRule(_falcon_h1, ignore_merges=True, adds_bos=True): ("falcon-h1",),
    WordRule(_deepseek_llm): ("deepseek-llm",),
    WordRule(_deepseek_coder): ("deepseek-coder",),
    _DEEPSEEK_3: ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
    WordRule(_spark): ("spark2_5",),
    WordRule(_split(patterns.YOUTU_SCRIPTS, patterns.YOUTU), ignore_merges=True): ("youtu",),
    _BLOOM: ("poro-chat", "bloom", "gpt3-finnish"),
    WordRule(_viking): ("viking",),
    WordRule(_chameleon, adds_bos=True): ("chameleon",),
    WordRule(_split(patterns.JAIS_2)): ("jais-2",),
    _AYA: ("tiny_aya", "cohere2moe"),
    WordRule(_superbpe): ("superbpe",),
    _LING: ("bailingmoe", "bailingmoe2", "llada-moe"),
    WordRule(_split(patterns.SEED_CODER)): ("seed-coder",),
    WordRule(_split(patterns.UFAKZEKA)): ("ufakzeka",),
    WordRule(_trinity): ("afmoe",),
    WordRule(_split(patterns.LINES, patterns.QWEN_2)): ("laguna",),
    WordRule(_split(patterns.EXAONE_MOE)): ("exaone-moe",),
    WordRule(_split(r"\p{N}{1,3}", patterns.MINICPM_5), ignore_merges=True): ("minicpm5",),
    WordRule(_split(SCHEMES["TikTokenTokenizer"].words), ignore_merges=True, is_tiktoken=True): ("kimi-k2",),
}
RULES = {name: rule for rule, names in _RULES.items() for name in names}
# Vocabularies of characters, in which a space is ▁.
PLAIN_NAMES = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")


def word_rule(name: str | None) -> WordRule:
    key = f"{PREFIX}pre"
    if name is None:
        raise ValueError(f"it has no {key}, like files of early 2024, so its rule for splitting words is unknown")
    if name not in RULES:
        raise ValueError(f"{key} is {shown(name)}, an unknown rule for splitting text into words")
    return RULES[name]


def adds_bos_by_default(name: str | None) -> bool:
    rule = RULES.get(name or "")
    return rule is not None and rule.adds_bos


def normalizer_of(rule: WordRule) -> Normalizer | None:
    return normalizers.NFC() if rule.is_composed else None
