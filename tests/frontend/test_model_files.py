"""A model is looked for as a bundled name, a folder and a hub id, in that order; what was tried is in the error."""

import json
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tokenizer_kinds import KINDS, write_tokenizer
from builders.watching import write_unnoticed
from huggingface_hub import constants

from penstock.frontend.models import model_files
from penstock.frontend.models.digests import digest_of_files
from penstock.frontend.models.draft_model import with_draft_model
from penstock.frontend.models.file_stamps import stamps_of
from penstock.frontend.models.model_files import BUNDLED, find_model, find_tokenizer
from penstock.frontend.models.model_names import nearest_model
from penstock.frontend.text import convert_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.protocol.files.cache_folder import cache_folder
from penstock.protocol.options.config import EngineConfig


def write_model(folder: Path) -> Path:
    write_tokenizer(folder, "byte_level")
    (folder / "config.json").write_text("{}")
    return folder


def write_vocabulary(folder: Path) -> Path:
    """The same tokenizer in the files of the time before tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    KINDS["byte_level"]().model.save(str(folder))
    settings = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|end|>", "bos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "unk_token": "<|end|>"}))
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return folder


def test_a_folder_is_a_model_whose_tokenizer_may_lie_elsewhere(tmp_path):
    found = find_model(write_model(tmp_path / "model"))
    assert found.folder == found.tokenizer_folder == (tmp_path / "model").resolve()
    write_tokenizer(tmp_path / "tokenizer", "unigram")
    found = find_model(tmp_path / "model", tmp_path / "tokenizer")
    assert (found.folder.name, found.tokenizer_folder.name) == ("model", "tokenizer")
    assert find_tokenizer(tmp_path / "tokenizer" / "tokenizer.json") == tmp_path / "tokenizer"


def test_a_bundled_name_counts_before_a_folder_of_that_name_and_a_folder_before_the_hub(tmp_path, monkeypatch):
    bundled, folder = write_model(tmp_path / "bundled"), write_model(tmp_path / "pocket")
    monkeypatch.setitem(model_files.BUNDLED, "pocket", bundled)
    monkeypatch.chdir(tmp_path)
    assert find_model("pocket").folder == bundled
    assert find_model("./pocket").folder == folder
    assert find_model(write_model(Path("owner/name"))).folder == tmp_path / "owner" / "name"


def test_offline_and_not_cached_names_everything_that_was_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError) as error:
        find_model("owner/missing", revision="v3")
    tried = ("owner/missing", "bundled", str(tmp_path / "owner/missing"), "v3", "offline", constants.HF_HUB_CACHE)
    assert all(part in str(error.value) for part in tried), error.value
    assert isinstance(error.value, FileNotFoundError)


@for_each("name", [
    "/no/such", "./no/such", "~/no-such-model", "a/b/c", "", "a@", "~nobody-of-that-name/x", "x" * 5000, "x\0y", "🦙",
])  # fmt: skip
def test_a_name_that_can_only_be_a_path_or_none_is_not_asked_of_the_hub(name):
    with pytest.raises(ModelNotFoundError, match="No model 'x" if len(name) > 1000 else "not a hub id") as error:
        find_model(name)
    assert ("no name was given" in str(error.value)) == (not name)


@for_each("file, given, sentence", [
    ("README.md", ".", "no config.json"), ("weights", "weights", "it is a file"),
    ("adapter_config.json", ".", "is a LoRA adapter"),
    ("config.json", "config.json", "is one file of a model. Give its folder"),
])  # fmt: skip
def test_a_path_that_is_no_models_folder_is_refused_with_what_it_is(tmp_path, file, given, sentence):
    (tmp_path / file).write_text("{}")
    with pytest.raises(ModelNotFoundError, match=sentence):
        find_model(tmp_path / given)


def test_paddles_pickles_without_safetensors_and_a_pointer_of_git_lfs_are_named(tmp_path):
    folder = write_model(tmp_path / "ernie")
    (folder / "model_state.pdparams").write_text("")
    (folder / "model.safetensors").write_bytes(b"")
    assert find_model(folder).folder == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model_state\.pdparams .* as a pickle.*\*\.safetensors"):
        find_model(folder)
    (folder / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
    with pytest.raises(ConfigError, match="config.json is a Git-LFS pointer.* `git lfs pull` in "):
        find_model(folder)


def test_a_tokenizer_of_another_form_is_converted_once_for_its_content_and_version(tmp_path, own_cache, monkeypatch):
    from transformers import AutoTokenizer

    folder, cache = write_vocabulary(tmp_path / "model"), own_cache / "tokenizers"
    made = find_model(folder).tokenizer_folder
    assert list(cache.iterdir()) == [made] and made != folder, "nothing half made is left"
    reference, tokenizer = AutoTokenizer.from_pretrained(folder), Tokenizer.from_pretrained(folder)
    text = "The quick brown fox, 你好!<|end|>"
    assert (tokenizer.encode(text), tokenizer.eos_token) == (reference.encode(text), "<|end|>")
    with monkeypatch.context() as patch:
        patch.setattr(convert_tokenizer, "_convert", lambda *_: pytest.fail("converted again"))
        assert find_tokenizer(folder) == find_tokenizer(write_vocabulary(tmp_path / "other")) == made
    monkeypatch.setattr(convert_tokenizer, "_convert", lambda source, target: (target / "tokenizer.json").touch())
    (tmp_path / "other" / "merges.txt").write_text("#version: 0.2\n")
    assert find_tokenizer(tmp_path / "other") != made
    assert convert_tokenizer._FORMAT > b"1", "the first versions ordered SentencePiece's merges otherwise"
    monkeypatch.setattr(convert_tokenizer, "_FORMAT", convert_tokenizer._FORMAT + b"+")
    assert find_tokenizer(folder) != made
    (folder / "generation_config.json").write_text('{"eos_token_id": [7]}')
    assert 7 in Tokenizer(made, folder).eos_token_ids, "answers end where the model says"


def test_a_conversion_without_its_packages_names_the_extra_and_what_it_takes(tmp_path, own_cache, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ConfigError, match=r"penstock\[transformers\]"):
        patch.setattr("importlib.util.find_spec", lambda name: None)
        find_model(write_vocabulary(tmp_path / "model"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "google.protobuf" else name)
    (tmp_path / "spiece.model").write_bytes(b"")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5TokenizerFast"}')
    with pytest.raises(ConfigError, match=r"penstock\[transformers\]' sentencepiece protobuf"):
        find_tokenizer(tmp_path)


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tmp_path, own_cache, monkeypatch):
    broken = tmp_path / "packages" / "transformers.py"
    broken.parent.mkdir()
    broken.write_text("import sys\nsys.exit('no sentencepiece here')\n")
    monkeypatch.syspath_prepend(broken.parent)
    with pytest.raises(ConfigError, match="could not convert.*no sentencepiece here.*tokenizer="):
        find_model(write_vocabulary(tmp_path / "model"))
    assert list((own_cache / "tokenizers").iterdir()) == []


def test_a_model_of_nearly_that_name_is_told_and_a_folder_beside_one_that_is_not_there(tmp_path):
    for folder in ("models--Qwen--Qwen3-0.6B", "qwen3-0.6b", "notes"):
        (tmp_path / folder).mkdir()
    for name, meant in (("pockt", "pocket"), ("Pocket", "pocket"), ("Qwen/Qwen3-0.6", "Qwen/Qwen3-0.6B")):
        assert nearest_model(name, BUNDLED, str(tmp_path)) == f" Did you mean {meant}?"
    with pytest.raises(ModelNotFoundError, match=f"Did you mean {tmp_path}/qwen3-0.6b?"):
        find_model(tmp_path / "qwen-0.6b")
    assert nearest_model(f"{tmp_path}/llama", BUNDLED, "/nowhere") == ""


def test_a_file_that_is_changed_in_place_has_another_digest_and_stamp_though_its_time_is_set_back(tmp_path, own_cache):
    (weights := tmp_path / "model.safetensors").write_bytes(b"a" * 1000)
    before = digest_of_files([weights], tmp_path), stamps_of([weights])
    assert any((cache_folder() / "digests").glob("[!.]*"))
    write_unnoticed(weights, b"b")
    now = digest_of_files([weights], tmp_path), stamps_of([weights, tmp_path / "missing"])
    assert not set(now) & set(before)


def test_heads_that_are_named_as_a_draft_model_are_refused_with_their_method(tmp_path):
    files, folder = find_model("pocket"), tmp_path / "heads"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    for name in (str(folder), "owner/Some-EAGLE3"):
        config = EngineConfig.from_options("pocket", speculative_config={"model": name})
        with pytest.raises(ConfigError, match='holds EAGLE-3 heads.*"method": "eagle3"'):
            with_draft_model(files, config)
