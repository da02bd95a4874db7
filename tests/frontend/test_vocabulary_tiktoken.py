"""A tiktoken file gives the ids that tiktoken gives, with the words and special tokens of the model's own code."""

import base64
import json
import random
import unicodedata
from functools import cache

import pytest
import tiktoken
from builders.cases import for_each
from builders.tokenizer_kinds import WORDS, random_text
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from penstock.frontend.models.model_files import find_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.frontend.text.vocabulary import tiktoken_tokenizer
from penstock.frontend.text.vocabulary.folder import write_tokenizer
from penstock.frontend.text.vocabulary.tiktoken_tokenizer import SCHEMES
from penstock.protocol.errors import ConfigError

ONE_NAME_EACH = ("LlamaTokenizer", "QWenTokenizer", "ChatGLM4Tokenizer", "TikTokenTokenizer")


@cache
def trained():
    """The ranks of a byte-level BPE, whose merges are trained."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    draw = random.Random(0)
    backend.train_from_iterator([" ".join(draw.choices(WORDS, k=9)) for _ in range(300)], trainer)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(moved)}
    return {bytes(map(byte_of.get, token)): rank for token, rank in backend.get_vocab().items()}


@cache
def drawn():
    """Ranks that no training gives: many tokens can't be reached by merges, or in several ways."""
    draw = random.Random(0)
    longer = sorted({bytes(draw.choices(b"ab te\xc3\xa9h\n", k=draw.randint(2, 5))) for _ in range(300)})
    tokens = draw.sample([bytes([byte]) for byte in range(256)], 256) + draw.sample(longer, len(longer))
    return {token: rank for rank, token in enumerate(tokens)}


def read(folder, ranks, name="tokenizer.model", **settings):
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()]
    random.Random(1).shuffle(lines)
    (folder / name).write_bytes(b"".join(lines))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "made").mkdir(exist_ok=True)
    write_tokenizer(folder / name, folder / "made")
    return Tokenizer(folder / "made")


@for_each("ranks", [trained, drawn])
@for_each("scheme", ONE_NAME_EACH)
def test_ids_are_those_of_tiktoken(scheme, ranks, tmp_path):
    tokenizer = read(tmp_path, ranks(), tokenizer_class=scheme)
    words, is_composed = SCHEMES[scheme].words, SCHEMES[scheme].is_composed
    reference = tiktoken.Encoding("made", pat_str=words, mergeable_ranks=ranks(), special_tokens={})
    draw = random.Random(scheme)
    texts = [random_text(draw) for _ in range(300)]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        composed = unicodedata.normalize("NFC", text) if is_composed else text
        assert ids == reference.encode_ordinary(composed), text
        assert tokenizer.decode(ids) == composed


def test_special_tokens_have_the_ids_that_the_settings_give_them_and_kimi_reserves_256(tmp_path):
    size = len(drawn())
    special = {"content": "<|eot|>", "special": True, "lstrip": False, "normalized": False}
    named = {str(size + 3): special, str(size): {"content": "<think>", "special": False}}
    settings = dict(tokenizer_class="ChatGLM4Tokenizer", eos_token="<|eot|>")
    tokenizer = read(tmp_path, drawn(), added_tokens_decoder=named, **settings)
    assert tokenizer.encode("<think><|eot|>") == [size, size + 3]
    assert tokenizer.token_to_id(f"<|reserved_token_{size + 1}|>") == size + 1
    assert (len(tokenizer), tokenizer.eos_token_id) == (size + 4, size + 3)
    assert tokenizer.decode([size, size + 1, size + 3]) == "<think>"
    settings = dict(tokenizer_class="TikTokenTokenizer", added_tokens_decoder={str(size + 2): special})
    tokenizer = read(tmp_path, drawn(), "tiktoken.model", **settings)
    assert (len(tokenizer), tokenizer.encode("<|eot|>")) == (size + 256, [size + 2])


LLAMA_3 = {"<|begin_of_text|>": 128_000, "<|eot_id|>": 128_009, "<|reserved_special_token_247|>": 128_255}
QWEN = {"<|endoftext|>": 151_643, "<|im_start|>": 151_644, "<|extra_204|>": 151_850}


@for_each("scheme, special, end", [("LlamaTokenizer", LLAMA_3, None), ("QWenTokenizer", QWEN, "<|endoftext|>")])
def test_a_file_of_a_known_size_has_the_special_tokens_of_its_model(scheme, special, end, tmp_path, monkeypatch):
    first = SCHEMES[scheme].first_special
    assert first == min(special.values())
    # As if the model had fewer tokens, of which none takes time.
    monkeypatch.setitem(SCHEMES, scheme, SCHEMES[scheme]._replace(first_special=len(drawn())))
    tokenizer = read(tmp_path, drawn(), "any.tiktoken", tokenizer_class=scheme)
    assert [token_id - len(drawn()) + first for token_id in tokenizer.encode("".join(special))] == [*special.values()]
    assert (len(tokenizer), tokenizer.eos_token) == (max(special.values()) + 1 - first + len(drawn()), end)


ALL_BYTES = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
BYTE_RANKS = {bytes([byte]): byte for byte in range(256)}


def test_a_model_without_a_class_of_its_own_is_known_by_its_type_or_by_as_many_tokens_as_llama_3(tmp_path, monkeypatch):
    ranks, digits = {**BYTE_RANKS, b"12": 256, b"123": 257, b"45": 258}, "12345"
    for model_type, scheme in (("llama", "LlamaTokenizer"), ("qwen", "QWenTokenizer")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        reference = tiktoken.Encoding("made", pat_str=SCHEMES[scheme].words, mergeable_ranks=ranks, special_tokens={})
        for own_class in (None, "PreTrainedTokenizerFast", "TokenizersBackend"):
            tokens = read(tmp_path, ranks, tokenizer_class=own_class).encode(digits)
            assert tokens == reference.encode_ordinary(digits)
            assert (len(tokens) == len(digits)) == (model_type == "qwen"), "the others cut digits in threes"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama4"}))
    with pytest.raises(ConfigError, match="model_type='llama4', known are llama, mllama"):
        read(tmp_path, drawn())
    (tmp_path / "config.json").unlink()
    own = SCHEMES["LlamaTokenizer"]._replace(first_special=256)
    monkeypatch.setattr(tiktoken_tokenizer, "_SCHEME_OF_LLAMA_3", own)
    assert read(tmp_path, BYTE_RANKS).token_to_id("<|begin_of_text|>") == 256


@for_each("content, settings, reason", [
    (b"IQ== 0\nIg==\n", {}, "line 2 is not a token"), (b"IQ== 0\n%%%% 1\n", {}, "line 2 is not a token"),
    (b"IQ== 0\nIg== 2\n", {}, "ranks are not the numbers"),
    (b"IQ== 0\nIg== 1\n", {}, "the byte 0 is not one of its tokens"),
    (b"%b", {}, "tokenizer_class=None.*model_type=None"),
    (b"%b", {"tokenizer_class": "PreTrainedTokenizerFast"}, "tokenizer_class='PreTrainedTokenizerFast'"),
    (b"%b", {"tokenizer_class": ["LlamaTokenizer"]}, r"tokenizer_class=\['LlamaTokenizer'\]"),
    (b"%b", {"tokenizer_class": "NewTokenizer"}, "code and not known.*tokenizer_class='NewTokenizer'"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(content, settings, reason, tmp_path):
    (tmp_path / "new.tiktoken").write_bytes(content.replace(b"%b", ALL_BYTES))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=f"new.tiktoken.*{reason}.*tokenizer="):
        find_tokenizer(tmp_path)
