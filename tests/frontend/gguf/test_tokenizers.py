"""A tokenizer made of a GGUF file's metadata gives the ids of the one that the metadata was made of."""

import json
import random
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
from builders import gguf_tokenizers
from builders.cases import for_each
from builders.gguf_tokenizers import PRE_TOKENIZERS, from_bert, from_sentencepiece, from_t5, from_tokenizer_json, read
from builders.sentencepiece_models import AS_LLAMA, trained
from builders.tokenizer_kinds import TEXTS, WORDS, random_text, write_tokenizer
from tokenizers import AddedToken, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import BertNormalizer

from penstock.frontend.models.model_names import BUNDLED
from penstock.frontend.text.gguf.word_rules import PLAIN_NAMES, RULES
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.frontend.text.vocabulary import SEGMENTER_FILE

TRAINED_EXPERTS = Path(__file__).parents[2] / "builders" / "trained_experts"
# Texts that the rules for words cut differently.
HARD = [
    *TEXTS,
    *("1", "12", "123", "1234", "12345678901", " 12 345", "3.14", "x1y22z333", "½²٣٤٥٦", "第123章", "一二三123"),
    *("I'm we'LL they'Re 'tis 'Twas don'tx ''s", "HelloWorld iPhone XMLHttp ÉCOLE éCOLE ǅaǅ", "ﬁﬃ ſs'ſ"),
    *("e\u0301 cafe\u0301 \u0301x a\u0308\u0301", "नमस्ते दुनिया", "กำลังทดสอบ", "한국어 ㄱㄴ", "ㄅㄆㄇ！……“”、〿"),
    *("a\n\n\nb", "a \n b", "\r\n\r\n", "\n  x", "x  \n", "\t\tx", " \u3000 ", "/a/b//c\n/", "#include <x>\n"),
    *("()[]{}!!!  ??? ..\n\n//--", "$100.00 + 5€ = ¥", "foo_bar-baz@x.org", "__init__", "a|b|c (d) [e]", "।۔، abc。"),
    *("\U0001f1e9\U0001f1ea\U0001f469\u200d\U0001f4bb", "IMGIMGABZ <sentinel:12>", "a" * 600 + " " * 600 + "b"),
]


def texts(seed, special=(), count=200):
    draw = random.Random(seed)
    found = [random_text(draw) for _ in range(count)]
    return [*HARD, *(draw.choice(("", *special)) + text + draw.choice(("", *special)) for text in found)]


def check(tokenizer, reference, asked):
    encoded = tokenizer.encode_batch(asked, add_special_tokens=False)
    for text, ids in zip(asked, encoded, strict=True):
        assert ids == reference(text), text


def check_pieces(tokenizer, reference, asked):
    """SentencePiece doesn't look for the names of special tokens in a text."""
    check(tokenizer, reference.encode, [text for text in asked if "<s>" not in text])


ADDED = [
    *(AddedToken(text, special=True, normalized=False) for text in ("<|begin|>", "<|end|>", "<｜fim▁begin｜>")),
    *(AddedToken(text, special=False, normalized=False) for text in ("<think>", "  ", "<tool_call>")),
]
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@cache
def published(name):
    """A tokenizer with the words of a published one, trained on what the texts are made of."""
    backend = Backend(models.BPE(ignore_merges=name in gguf_tokenizers.IGNORE_MERGES))
    state = json.loads(backend.to_str())
    state |= {
        "pre_tokenizer": PRE_TOKENIZERS[name],
        "normalizer": gguf_tokenizers.NORMALIZERS.get(name),
        "decoder": BYTES,
    }
    backend = Backend.from_str(json.dumps(state))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS, k=9)) for _ in range(200)] + HARD
    backend.train_from_iterator(sentences * 3, trainer)
    backend.add_tokens(ADDED)
    return backend


def write_published(folder, name):
    published(name).save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def check_published(name, folder):
    backend = published(name)
    metadata = from_tokenizer_json(write_published(folder, name), name, vocab_size=1024)
    tokenizer = read(folder / "made", metadata)
    special = [token.content for token in ADDED]
    asked = texts(name, special)
    check(tokenizer, lambda text: backend.encode(text, add_special_tokens=False).ids, asked)
    for text in asked[:50]:
        ids = backend.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == backend.decode(ids, skip_special_tokens=False)
    assert len(tokenizer) == backend.get_vocab_size()


@pytest.fixture(scope="module")
def of_gpt_2(tmp_path_factory):
    return from_tokenizer_json(write_published(tmp_path_factory.mktemp("gpt-2"), "gpt-2"), "gpt-2")


def test_every_name_cuts_text_into_words_that_come_back(of_gpt_2, tmp_path):
    for name in RULES:
        tokenizer = read(tmp_path / name, of_gpt_2 | {"tokenizer.ggml.pre": name})
        normalizer = tokenizer.backend.normalizer
        for text in [text for text in texts(name, count=5) if "<|" not in text]:
            expected = normalizer.normalize_str(text) if normalizer else text
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == expected, name


@for_each("folder", [TRAINED_EXPERTS, *(folder for folder in BUNDLED.values() if folder.is_dir())])
def test_models_that_come_along_keep_their_ids(folder, tmp_path):
    original = Tokenizer(folder)
    tokenizer = read(tmp_path / "made", from_tokenizer_json(folder, "ufakzeka", vocab_size=4096))
    special = [token.content for token in original.backend.get_added_tokens_decoder().values()]
    check(tokenizer, lambda text: original.encode(text, add_special_tokens=False), texts(folder.name, special))
    assert (len(tokenizer), tokenizer.vocab_size) == (len(original), original.vocab_size)
    assert (tokenizer.eos_token, tokenizer.pad_token) == (original.eos_token, original.pad_token)
    assert tokenizer.decoding.special_ids == original.decoding.special_ids


def test_a_file_says_whether_characters_are_composed_and_kimis_merges_go_by_rank(of_gpt_2, tmp_path):
    for is_composed, expected in ((True, "é"), (False, "e\u0301"), (None, "e\u0301")):
        said = {} if is_composed is None else {"tokenizer.ggml.normalizer.nfc": is_composed}
        tokenizer = read(tmp_path / f"made {is_composed}", of_gpt_2 | said)
        assert tokenizer.decode(tokenizer.encode("e\u0301")) == expected
    metadata = {key: value for key, value in of_gpt_2.items() if key != "tokenizer.ggml.merges"}
    tokenizer = read(tmp_path / "kimi", metadata | {"tokenizer.ggml.pre": "kimi-k2"})
    for text in ("hello", " world", "return"):
        assert tokenizer.encode(text, add_special_tokens=False) == published("gpt-2").encode(text).ids


@for_each("model, pre", [("gemma4", None), *(("gpt2", name) for name in PLAIN_NAMES)])
def test_vocabularies_of_characters_keep_their_ids(model, pre, tmp_path):
    """As Gemma 4: merges, ▁ for a space, bytes for the rest, and tokens of spaces that are added."""
    backend = Backend.from_file(str(write_tokenizer(tmp_path, "byte_fallback") / "tokenizer.json"))
    state = json.loads(backend.to_str())
    state["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    state["post_processor"] = None
    state["decoder"]["decoders"].pop()
    vocabulary = state["model"]["vocab"]
    if "▁▁" not in vocabulary:
        vocabulary["▁▁"] = len(vocabulary)
        state["model"]["merges"].append(["▁", "▁"])
    options = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    state["added_tokens"].append({"id": vocabulary["▁▁"], "content": "▁▁", **options})
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    backend = Backend.from_file(str(tmp_path / "tokenizer.json"))
    metadata = from_tokenizer_json(tmp_path, pre, model=model)
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = [6 if 3 <= at < 259 else kind for at, kind in enumerate(types)]
    metadata["tokenizer.ggml.token_type"][0] = 2
    tokenizer = read(tmp_path / "made", metadata)
    asked = texts(model, ("<s>", "</s>"))
    check(tokenizer, lambda text: backend.encode(text, add_special_tokens=False).ids, asked)
    ids = tokenizer.encode("The  fox", add_special_tokens=False)
    assert tokenizer.decode(ids) == "The  fox"


BPE_MODELS = {
    "as Llama": AS_LLAMA,
    "unknown characters": {**AS_LLAMA, "byte_fallback": False, "character_coverage": 0.98},
    "pieces across spaces": {**AS_LLAMA, "split_by_whitespace": False},
}
UNIGRAM_MODELS = {
    "unigram": dict(model_type="unigram"),
    "case folded": dict(model_type="unigram", normalization_rule_name="nfkc_cf"),
    "unigram of bytes": {**AS_LLAMA, "model_type": "unigram"},
    "no prefix": dict(model_type="unigram", add_dummy_prefix=False, normalization_rule_name="nfkc"),
}
OF_GEMMA = ["\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>", "[toxicity=0]"]
trained_once = cache(lambda kind, name: trained(**{"bpe": BPE_MODELS, "unigram": UNIGRAM_MODELS}[kind][name]))


def write_model(folder, model, **settings):
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def check_bpe(name, folder):
    reference = write_model(folder, trained_once("bpe", name), bos_token="<s>", eos_token="</s>")
    tokenizer = read(folder / "made", from_sentencepiece(folder, vocab_size=700))
    check_pieces(tokenizer, reference, texts(name))
    assert not (folder / "made" / SEGMENTER_FILE).exists(), "the library does it all"
    assert tokenizer.encode("the") == [reference.bos_id(), *reference.encode("the")]
    assert len(tokenizer) == reference.vocab_size()


def made_of_gemma(folder, *, has_equal_scores):
    """With tokens of spaces and line ends: user-defined pieces, which the converter knows from the settings."""
    model = trained(**AS_LLAMA | {"add_dummy_prefix": False}, user_defined_symbols=OF_GEMMA)
    reference = write_model(folder, model)
    listed = {str(reference.piece_to_id(piece)): {"content": piece, "special": False} for piece in OF_GEMMA}
    write_model(folder, model, bos_token="<s>", eos_token="</s>", added_tokens_decoder=listed)
    metadata = from_sentencepiece(folder) | {"tokenizer.ggml.add_space_prefix": False}
    if has_equal_scores:  # so that pieces are cut here, and not by the library
        metadata["tokenizer.ggml.remove_extra_whitespaces"] = False
        scores = metadata["tokenizer.ggml.scores"]
        last = [at for at, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == 1 and at > 300][:2]
        scores[last[1]] = scores[last[0]]
    tokenizer = read(folder / "made", metadata)
    assert (folder / "made" / SEGMENTER_FILE).exists() == has_equal_scores
    return tokenizer, reference


def check_gemma(name, folder):
    tokenizer, reference = made_of_gemma(folder, has_equal_scores=False)
    check_pieces(tokenizer, reference, texts(name, ("<table>", "  ", "\n\n")))


def test_tokens_of_spaces_are_found_where_pieces_have_equal_scores(tmp_path):
    tokenizer, reference = made_of_gemma(tmp_path, has_equal_scores=True)
    for text in ("a  b", "   x", "    \n\n  the"):
        spaces = [at for at in reference.encode(text) if reference.id_to_piece(at) in OF_GEMMA]
        assert [at for at in tokenizer.encode(text, add_special_tokens=False) if at in spaces] == spaces
        assert tokenizer.decode(tokenizer.encode(text)) == text


def check_unigram(name, folder):
    reference = write_model(folder, trained_once("unigram", name), eos_token="</s>")
    tokenizer = read(folder / "made", from_t5(folder))
    check_pieces(tokenizer, reference, texts(name))
    assert tokenizer.encode("the") == [*reference.encode("the"), reference.eos_id()]


def test_the_space_behind_special_tokens_goes_by_the_vocabulary(tmp_path):
    """As llama.cpp and most files have it; Mistral's later vocabularies have one before a text only."""
    no_prefix = {"tokenizer.ggml.add_space_prefix": False}
    for metadata, special, after_first in (
        ({}, "[START]", "▁the"), ({}, "[INST]", "the"), (no_prefix, "[START]", "the"),
    ):  # fmt: skip
        write_model(tmp_path, trained(**AS_LLAMA, control_symbols=[special]), bos_token="<s>")
        tokenizer = read(tmp_path / "made", from_sentencepiece(tmp_path) | metadata)
        ids = tokenizer.encode(f"{special}the", add_special_tokens=False)
        assert "".join(tokenizer.backend.id_to_token(at) for at in ids) == special + after_first


def test_tokens_of_phi_3_take_the_spaces_behind_them(tmp_path):
    size = sentencepiece.SentencePieceProcessor(model_proto=trained_once("bpe", "as Llama")).vocab_size()
    names = ("<|endoftext|>", "<|end|>")
    listed = {str(size + at): {"content": name, "special": True} for at, name in enumerate(names)}
    write_model(tmp_path, trained_once("bpe", "as Llama"), eos_token="<|end|>", added_tokens_decoder=listed)
    metadata = from_sentencepiece(tmp_path, vocab_size=size + 2) | {"general.architecture": "phi3"}
    tokenizer = read(tmp_path / "made", metadata)
    assert tokenizer.encode("<|end|>\n  ", add_special_tokens=False) == [size + 1]
    assert len(tokenizer.encode("<|endoftext|>\n  ", add_special_tokens=False)) > 1


def check_bert(name, folder):
    original = Backend.from_file(str(write_tokenizer(folder, "word_piece") / "tokenizer.json"))
    metadata = from_bert(folder) | {"tokenizer.ggml.normalizer.lowercase": False}
    tokenizer = read(folder / "made", metadata)
    original.normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    check(tokenizer, lambda text: original.encode(text, add_special_tokens=False).ids, texts(name, ("[SEP]",)))
    begin, end = original.token_to_id("[CLS]"), original.token_to_id("[SEP]")
    assert tokenizer.encode("fox") == [begin, *original.encode("fox", add_special_tokens=False).ids, end]


ORIGINALS = [
    *((check_published, name) for name in PRE_TOKENIZERS), *((check_bpe, name) for name in BPE_MODELS),
    *((check_unigram, name) for name in UNIGRAM_MODELS), (check_gemma, "gemma"), (check_bert, "bert"),
]  # fmt: skip


@for_each("check, name", ORIGINALS)
def test_ids_are_those_of_the_original(check, name, tmp_path):
    check(name, tmp_path)
