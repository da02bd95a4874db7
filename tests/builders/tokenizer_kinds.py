"""Small tokenizers of each kind, trained on the spot, the folder that a model keeps them in, and what they are given.

Random texts are made of what tokenizers treat in ways of their own: spaces, code, scripts, marks, control characters.
Chat templates are in the styles of real families: their constructs, helpers and quirks.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It doesn't mind, does it?",
    "你好，世界！今天天气怎么样？ こんにちは 안녕하세요",
    "naïve café, Ünïcödé — “quotes” … and emoji 🙂👨‍👩‍👧 🇩🇪",
    "def add(a, b):\n    return a + b\n\n\tprint(add(1, 23))  # 456",
    "user assistant system hello world stop Human: answer",
]
# Texts to encode; beyond the corpus in part.
TEXTS = [
    *CORPUS, "", " ", "  leading and   inner   spaces ", "\n\n\ttabs\r\nand lines", "Zażółć gęślą jaźń; ничего; 🏴‍☠️",
    "special <s>tokens</s> and <|end|> in text",
]  # fmt: skip
_FILES = sorted((Path(__file__).parent / "chat_templates").glob("*.jinja"))
CHAT_TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in _FILES}
WORDS = (
    *("The", "the", "answer", "here", "return", "def", "class", "value", "hello", "café", "naïve", "你好", "世界"),
    *("こんにちは", "안녕", "Ünï", "ﬁne", "①②", "㍿", "ａｂｃ"),
)
_BETWEEN = [" ", " ", " ", "  ", "\n", "\n    ", ". ", ", ", "\t", ""]
_MARKS = (
    *("\0", "\x01", "\t", "\r\n", "\u3000", "\u00a0", "\u200b", "\ufeff", "\u2028", " ", "▁", "\ufffd"),
    *("🙂", "👨‍👩‍👧", "ﬁ", "ａ", "é", "e\u0301", "\u1112\u1161\u11ab", "한", "½", "か\u3099", "İ", "ſ"),
    *("I'm", "we'LL", "1234567", "<uds>", "<uds", "<0x41>", "x", "he", "漢字"),
)
_RANGES = ((0x01, 0x250), (0x300, 0x3000), (0x3000, 0xD7FF), (0xE000, 0x20000))


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3 and Qwen: every byte is a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<|end|>", "<|start|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    tokenizer.add_special_tokens(["<｜begin▁of▁sentence｜>"])
    return tokenizer


def byte_level_with_bos() -> Tokenizer:
    """As Llama 3: the post-processor begins every text with a BOS."""
    tokenizer = byte_level()
    bos = tokenizer.token_to_id("<|start|>")
    template = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", bos)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2 and Mistral: spaces are `▁`, one before the text, and unknown characters are bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=special, show_progress=False, limit_alphabet=60, max_token_length=12
    )
    tokenizer.train_from_iterator([line.replace(" ", "▁") for line in CORPUS[:1] + CORPUS[3:]], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram() -> Tokenizer:
    """As T5 and other sentencepiece models: a Metaspace before every word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """As BERT: a decoder that is no function of single tokens."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    kind.__name__: cache(kind) for kind in (byte_level, byte_level_with_bos, byte_fallback, unigram, word_piece)
}

# What each kind's tokenizer_config.json says.
SETTINGS: dict[str, dict[str, Any]] = {
    "byte_level": {"eos_token": "<|end|>", "pad_token": "<|end|>"},
    "byte_level_with_bos": {"bos_token": "<|start|>", "eos_token": "<|end|>"},
    "byte_fallback": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "unigram": {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "word_piece": {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"},
}


def write_tokenizer(folder: Path, kind: str, **settings: Any) -> Path:
    """tokenizer.json and tokenizer_config.json of one kind; `settings` are added to its own."""
    folder.mkdir(parents=True, exist_ok=True)
    KINDS[kind]().save(str(folder / "tokenizer.json"))
    own = {"tokenizer_class": "PreTrainedTokenizerFast", **SETTINGS[kind], **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps({**own, "clean_up_tokenization_spaces": False}))
    return folder


def random_text(draw: Random) -> str:
    kind = draw.random()
    if kind < 0.5:
        return "".join(draw.choice((*WORDS, "<uds>")) + draw.choice(_BETWEEN) for _ in range(draw.randint(0, 12)))
    if kind < 0.65:
        return "".join(draw.choices("ab ▁e\u0301tTh", k=draw.randint(0, 20)))
    if kind < 0.9:
        return "".join(draw.choices(_MARKS, k=draw.randint(0, 15)))
    return "".join(chr(draw.randrange(*draw.choice(_RANGES))) for _ in range(draw.randint(0, 10)))
