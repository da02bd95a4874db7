"""Whatever a tokenizer_config.json says, a tokenizer is made of it, or it is refused in a sentence that names it."""

import json
import shutil

import pytest

from penstock.frontend.model_files import find_model
from penstock.frontend.tokenizer import Tokenizer, chat_templates, special_tokens
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


def test_settings_that_are_nested_too_deep_are_refused(tmp_path):
    shutil.copy(find_model("pocket").tokenizer_folder / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[" * 200_000)
    with pytest.raises(ConfigError, match=r"tokenizer_config.json is nested too deep"):
        Tokenizer(tmp_path)
