"""Whatever a tokenizer_config.json says, a tokenizer is made of it, or it is refused in a sentence that names it."""

import json
import shutil
from base64 import b64encode
from itertools import product

import pytest
from builders.sentencepiece_models import NORMAL, written

from penstock.frontend.models.model_files import find_model
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.frontend.text.tokenizer_files import chat_templates, special_tokens
from penstock.frontend.text.vocabulary import write_tokenizer
from penstock.protocol.errors import ConfigError

ODD = [
    5, "x", True, None, [], [1], ["x"], {}, {"x": 1}, {"content": 5}, {"content": ["x"]}, {"5": None},
    {"x": {"content": "a"}},
    [{"name": [1], "template": "x"}], [{"name": "x", "template": 5}], [{"template": "x"}], "\ud800",
]  # fmt: skip
KEYS = [
    "eos_token", "bos_token", "pad_token", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
    "chat_template", "add_bos_token", "add_eos_token", "add_prefix_space", "tokenizer_class", "legacy",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_any_value_is_taken_or_refused(tmp_path, key):
    shutil.copy(find_model("pocket").tokenizer_folder / "tokenizer.json", tmp_path)
    for value in ODD:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
        for work in (Tokenizer, chat_templates, special_tokens):
            try:
                work(tmp_path)
            except ConfigError as error:
                told = str(error)
            else:
                continue
            assert "tokenizer_config.json" in told


# What stands in a tokenizer.model: a SentencePiece model, and the bytes of a tiktoken file.
VOCABULARIES = {
    "SentencePiece": written([("a", -1.0, NORMAL), ("b", -2.0, NORMAL), ("ab", -3.0, NORMAL)]),
    "tiktoken": b"".join(b"%b %d\n" % (b64encode(bytes([byte])), byte) for byte in range(256)),
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_beside_another_librarys_vocabulary_too(tmp_path, vocabulary):
    (path := tmp_path / "tokenizer.model").write_bytes(VOCABULARIES[vocabulary])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (target := tmp_path / "target").mkdir()
    read = ("eos_token", "bos_token", "added_tokens_decoder", "tokenizer_class")
    cases = [("added_tokens.json", "x"), *(("tokenizer_config.json", key) for key in read)]
    for (file, key), value in product(cases, ODD):
        (tmp_path / file).write_text(json.dumps({key: value, "<new>": 1}))
        try:
            write_tokenizer(path, target)
            told = file
        except ConfigError as error:
            told = str(error)
        assert file in told, (file, key, value)
        (tmp_path / file).unlink()


def test_settings_that_are_nested_too_deep_are_refused(tmp_path):
    shutil.copy(find_model("pocket").tokenizer_folder / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[" * 200_000)
    with pytest.raises(ConfigError, match=r"tokenizer_config.json is nested too deep"):
        Tokenizer(tmp_path)
