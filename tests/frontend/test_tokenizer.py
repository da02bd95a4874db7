"""Token ids are those of transformers, special tokens come from whichever file names them, and there is one BOS."""

import json
import subprocess
import sys
from base64 import b64encode
from itertools import product

import pytest
import sentencepiece
from builders.cases import for_each
from builders.gguf_tokenizers import from_tokenizer_json
from builders.sentencepiece_models import NORMAL, trained, written
from builders.tokenizer_kinds import KINDS, TEXTS, write_tokenizer

from penstock.frontend.text.chat_templates import chat_templates, special_tokens
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.frontend.text.tokenizer_files import read_decoding
from penstock.frontend.text.vocabulary.folder import write_tokenizer as write_from_vocabulary
from penstock.protocol.errors import ConfigError, ModelNotFoundError, RequestError


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("tokenizers")
    return {kind: write_tokenizer(root / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def references(folders):
    from transformers import AutoTokenizer

    return {kind: AutoTokenizer.from_pretrained(folder) for kind, folder in folders.items()}


@for_each("kind", sorted(KINDS))
def test_ids_text_and_special_tokens_are_those_of_transformers(kind, folders, references):
    tokenizer, reference = Tokenizer.from_pretrained(folders[kind]), references[kind]
    for text in TEXTS:
        for add_special_tokens in (True, False):
            ids = reference.encode(text, add_special_tokens=add_special_tokens)
            assert tokenizer.encode(text, add_special_tokens) == ids, text
            for skip_special_tokens in (True, False):
                assert tokenizer.decode(ids, skip_special_tokens) == reference.decode(ids, skip_special_tokens), text
    assert tokenizer.encode_batch(TEXTS) == reference(TEXTS)["input_ids"]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "bos_token", "eos_token", "vocab_size"):
        assert getattr(tokenizer, name) == getattr(reference, name), name
    assert len(tokenizer) == len(reference)


@for_each("kind", sorted(KINDS))
def test_a_tokenizer_that_is_read_for_decoding_alone_gives_every_token_the_same_text(kind, folders):
    whole, decoding = Tokenizer(folders[kind]), read_decoding(folders[kind])
    ids = range(len(whole))
    assert [decoding.token(each) for each in ids] == [whole.decoding.token(each) for each in ids]
    assert decoding.special_ids == whole.decoding.special_ids and decoding.added == whole.decoding.added
    for text in TEXTS:
        assert decoding.text(whole.encode(text)) == whole.decoding.text(whole.encode(text))
    assert not json.loads(decoding.backend.to_str())["model"].get("merges")


def test_reading_vocabularies_and_making_text_needs_none_of_the_libraries_that_made_them(folders, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model := trained(model_type="unigram"))
    (tmp_path / "made").mkdir()
    metadata = from_tokenizer_json(folders["byte_level"], "gpt-2")
    (tmp_path / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    code = f"""
import json, pathlib, sys
import penstock.frontend.text.detokenizer
print(json.dumps(sorted({{"torch", "numpy", "transformers", "jinja2", "huggingface_hub"}} & sys.modules.keys())))
for name in ("torch", "numpy", "transformers", "sentencepiece", "tiktoken", "gguf", "google", "google.protobuf"):
    sys.modules[name] = None
from penstock.frontend.text.gguf import write_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer
folder = pathlib.Path({str(tmp_path)!r})
write_tokenizer(json.loads((folder / "metadata.json").read_text(encoding="utf-8")), folder / "made")
for each in ({str(folders["byte_level"])!r}, folder, folder / "made"):
    print(Tokenizer.from_pretrained(each).encode("The fox"))
print(json.dumps(sorted({{"huggingface_hub", "jinja2"}} & sys.modules.keys())))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    ids = KINDS["byte_level"]().encode("The fox").ids
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model).encode("The fox")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [[], ids, pieces, ids, []]


def test_a_text_has_one_bos_whether_it_is_in_the_text_the_file_or_the_settings(folders, tmp_path):
    for kind, bos in (("byte_level_with_bos", "<|start|>"), ("byte_fallback", "<s>")):
        tokenizer = Tokenizer.from_pretrained(folders[kind])
        assert tokenizer.encode("hello")[0] == tokenizer.bos_token_id
        for ids in (tokenizer.encode(f"{bos}hello"), *tokenizer.encode_batch([f"{bos}hello", f"{bos}hello"])):
            assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    settings = {"bos_token": "<|start|>", "add_bos_token": True}
    tokenizer = Tokenizer.from_pretrained(write_tokenizer(tmp_path, "byte_level", **settings))
    expected = [tokenizer.bos_token_id, *tokenizer.encode("hello", add_special_tokens=False)]
    assert tokenizer.encode("hello") == tokenizer.encode("<|start|>hello") == expected
    assert tokenizer.encode_batch(["hello"]) == [expected]


ADDED = {"__type": "AddedToken", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


def test_special_tokens_are_read_in_every_form_and_a_map_fills_in_what_the_settings_leave_out(tmp_path):
    forms = "<|end|>", {"content": "<|end|>", "lstrip": False, "special": True}, {**ADDED, "content": "<|end|>"}
    for form in forms:
        tokenizer = Tokenizer.from_pretrained(write_tokenizer(tmp_path, "byte_level", eos_token=form))
        assert (tokenizer.eos_token, tokenizer.decode(tokenizer.eos_token_id, False)) == ("<|end|>", "<|end|>")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<|start|>", "eos_token": "<think>"}))
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|start|>", "<|end|>")


SIZE = KINDS["byte_level"]().get_vocab_size()
THINK = str(KINDS["byte_level"]().token_to_id("<think>"))
LISTED = {
    str(SIZE): {**ADDED, "content": "<|image|>", "special": True},
    str(SIZE + 1): {**ADDED, "content": "<answer>", "special": False},
}
THINK_LISTED = {**ADDED, "content": "<think>"}


@for_each("settings", [
    {"eos_token": "<|eot|>", "additional_special_tokens": ["<|tool|>"], "added_tokens_decoder": LISTED},
    {"added_tokens_decoder": {THINK: {**THINK_LISTED, "special": True}}},
    {"additional_special_tokens": ["<think>"]}, {"extra_special_tokens": {"image_token": "hello"}},
    {"pad_token": "<think>", "added_tokens_decoder": {THINK: {**THINK_LISTED, "rstrip": True, "lstrip": True}}},
    {"pad_token": "<think>"}, {"pad_token": "hello"}, {"pad_token": "he"},
])  # fmt: skip
def test_tokens_that_the_settings_add_or_mark_are_those_of_transformers(tmp_path, settings):
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path, "byte_level", **settings)
    tokenizer, reference = Tokenizer.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    text = "a <think> hello <|image|>brown<answer>world<|tool|><|eot|> <|end|>"
    ids = reference.encode(text)
    assert tokenizer.encode(text) == ids
    for skip_special_tokens in (True, False):
        expected = reference.decode(ids, skip_special_tokens)
        decoder = tokenizer.decoding.decoder(skip_special_tokens=skip_special_tokens)
        assert tokenizer.decode(ids, skip_special_tokens) == decoder.feed(ids) == expected


@for_each("own, generation, config, expected", [
    ("<|end|>", {"eos_token_id": [1, 5]}, {"eos_token_id": 9}, [1, 5, 0]),
    ("<|end|>", {"eos_token_id": 0}, {}, [0]), ("<|end|>", {}, {"eos_token_id": [9, 0]}, [9, 0]),
    ("<|end|>", {}, {"text_config": {"eos_token_id": 9}}, [9, 0]),
    ("<|end|>", {}, {}, [0]),
    (None, {}, {"eos_token_id": [7, 3]}, [7, 3]),  # without one of its own
])  # fmt: skip
def test_every_token_that_ends_an_answer_is_found(tmp_path, own, generation, config, expected):
    folder = write_tokenizer(tmp_path / "tokenizer", "byte_level", eos_token=own)
    for models_own in (folder, tmp_path):  # its files may lie in another folder
        (models_own / "generation_config.json").write_text(json.dumps(generation))
        (models_own / "config.json").write_text(json.dumps(config))
        tokenizer = Tokenizer(folder, models_own)
        assert (tokenizer.eos_token_ids, tokenizer.eos_token_id) == (expected, 0 if own else 7)
        (models_own / "generation_config.json").unlink()
        (models_own / "config.json").unlink()


def test_truncation_and_padding_baked_into_the_file_are_off(tmp_path):
    write_tokenizer(tmp_path, "byte_level")
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    state["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    assert len(Tokenizer.from_pretrained(tmp_path).encode("The quick brown fox jumps over the lazy dog")) > 3


def test_one_token_is_shown_as_it_stands_in_a_text_and_half_a_character_spoils_no_other_text(folders):
    tokenizer = Tokenizer.from_pretrained(folders["byte_level"])
    for token, text in (("Ġthe", " the"), ("<|end|>", "<|end|>"), ("ð", "\ufffd")):
        assert tokenizer.decode_token(tokenizer.token_to_id(token)) == text
    assert tokenizer.token_to_id("\ud800") == tokenizer.token_to_id("\ufffd")
    texts = [tokenizer.decode(ids) for ids in tokenizer.encode_batch(["fine", "\ud83d\ude42 \ud800"])]
    assert texts == ["fine", "🙂 \ufffd"]


def test_a_broken_file_and_a_folder_without_a_tokenizer_are_named(tmp_path):
    write_tokenizer(tmp_path, "byte_level")
    for settings, reason in (("{", "is not valid JSON"), ("[" * 200_000, "is nested too deep")):
        (tmp_path / "tokenizer_config.json").write_text(settings)
        with pytest.raises(ConfigError, match=f"tokenizer_config.json {reason}"):
            Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json can't be read"):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFoundError, match="holds no tokenizer"):
        Tokenizer.from_pretrained(tmp_path / "empty")


MESSAGES = [{"role": "user", "content": "hi"}]
OF_WRONG_TYPES = [None, 5, -1, 1.5, 10**40, float("nan"), b"x", {"a": 1}, {1}, [[]], [{}], [None], [1.5], object(), len]
CALLS = {
    "encode": (lambda tokenizer, value: tokenizer.encode(value), ()),
    "encode_batch": (lambda tokenizer, value: tokenizer.encode_batch(value), ()),
    "add_special_tokens": (lambda tokenizer, value: tokenizer.encode("x", value), ()),
    "decode": (lambda tokenizer, value: tokenizer.decode(value), (5, b"x", {1})),
    "decode_token": (lambda tokenizer, value: tokenizer.decode_token(value), (5,)),
    "token_to_id": (lambda tokenizer, value: tokenizer.token_to_id(value), ()),
    "messages": (lambda tokenizer, value: tokenizer.apply_chat_template(value), ()),
    "tools": (lambda tokenizer, value: tokenizer.apply_chat_template(MESSAGES, tools=value), (None, [{}])),
    "chat_template": (lambda tokenizer, value: tokenizer.apply_chat_template(MESSAGES, chat_template=value), (None,)),
}


@for_each("name", CALLS)
def test_values_of_wrong_types_are_refused_in_a_sentence(name):
    call, right = CALLS[name]
    tokenizer = Tokenizer.from_pretrained("pocket")
    for value in OF_WRONG_TYPES:
        if any(value is each or value == each for each in right):
            call(tokenizer, value)
            continue
        with pytest.raises(RequestError) as raised:
            call(tokenizer, value)
        told = str(raised.value)
        assert told[0].isupper() or " must be " in told, (value, told)


ODD = [
    5, "x", True, None, [], [1], ["x"], {}, {"x": 1}, {"content": 5}, {"content": ["x"]}, {"5": None},
    {"x": {"content": "a"}},
    [{"name": [1], "template": "x"}], [{"name": "x", "template": 5}], [{"template": "x"}], "\ud800",
]  # fmt: skip
KEYS = [
    "eos_token", "bos_token", "pad_token", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
    "chat_template", "add_bos_token", "add_eos_token", "add_prefix_space", "tokenizer_class", "legacy",
]  # fmt: skip


def refusal(work, *of):
    try:
        work(*of)
    except ConfigError as error:
        return str(error)


@for_each("key", KEYS)
def test_any_value_is_taken_or_refused(tmp_path, key):
    write_tokenizer(tmp_path, "byte_level")
    for value in ODD:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
        for work in (Tokenizer, chat_templates, special_tokens):
            told = refusal(work, tmp_path)
            assert told is None or "tokenizer_config.json" in told


# The content of a tokenizer.model: a SentencePiece model, and a tiktoken file.
VOCABULARIES = {
    "SentencePiece": written([("a", -1.0, NORMAL), ("b", -2.0, NORMAL), ("ab", -3.0, NORMAL)]),
    "tiktoken": b"".join(b"%b %d\n" % (b64encode(bytes([byte])), byte) for byte in range(256)),
}


@for_each("vocabulary", VOCABULARIES)
def test_beside_another_librarys_vocabulary_too(tmp_path, vocabulary):
    (path := tmp_path / "tokenizer.model").write_bytes(VOCABULARIES[vocabulary])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (target := tmp_path / "target").mkdir()
    read = ("eos_token", "bos_token", "added_tokens_decoder", "tokenizer_class")
    cases = [("added_tokens.json", "x"), *(("tokenizer_config.json", key) for key in read)]
    for (file, key), value in product(cases, ODD):
        (tmp_path / file).write_text(json.dumps({key: value, "<new>": 1}))
        told = refusal(write_from_vocabulary, path, target)
        assert told is None or file in told, (file, key, value)
        (tmp_path / file).unlink()
