"""A model is looked for as a bundled name, a folder and a hub id, in that order; what was tried is in the error."""

import json
import os
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tokenizer_kinds import KINDS, write_tokenizer
from huggingface_hub import constants

from penstock.frontend.models import model_files
from penstock.frontend.models.model_files import BUNDLED, find_model, find_tokenizer
from penstock.frontend.models.model_names import nearest_model
from penstock.frontend.text import convert_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.protocol.files.made_folders import KEPT, MadeFolders
from penstock.protocol.files.own_folder import make_own


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


def test_a_folder_is_a_model(tmp_path):
    found = find_model(write_model(tmp_path / "model"))
    assert found.folder == found.tokenizer_folder == (tmp_path / "model").resolve()


def test_the_tokenizer_may_lie_elsewhere(tmp_path):
    write_tokenizer(tmp_path / "tokenizer", "unigram")
    found = find_model(write_model(tmp_path / "model"), tmp_path / "tokenizer")
    assert (found.folder.name, found.tokenizer_folder.name) == ("model", "tokenizer")
    assert find_tokenizer(tmp_path / "tokenizer" / "tokenizer.json") == tmp_path / "tokenizer"


def test_a_bundled_name_counts_before_a_folder_of_that_name(tmp_path, monkeypatch):
    bundled, folder = write_model(tmp_path / "bundled"), write_model(tmp_path / "pocket")
    monkeypatch.setitem(model_files.BUNDLED, "pocket", bundled)
    monkeypatch.chdir(tmp_path)
    assert find_model("pocket").folder == bundled
    assert find_model("./pocket").folder == folder


def test_a_folder_counts_before_the_hub(tmp_path, monkeypatch):
    write_model(tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    assert find_model("owner/name").folder == tmp_path / "owner" / "name"


def test_offline_and_not_cached_names_everything_that_was_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError) as error:
        find_model("owner/missing", revision="v3")
    shown = str(error.value)
    for part in ("owner/missing", "bundled", str(tmp_path / "owner/missing"), "v3", "offline", constants.HF_HUB_CACHE):
        assert part in shown
    assert isinstance(error.value, FileNotFoundError)


@for_each(
    "name",
    ["/no/such", "./no/such", "~/no-such-model", "a/b/c", "", "~nobody-of-that-name/x", "x" * 5000, "x\0y", "🦙"],
)
def test_a_name_that_can_only_be_a_path_or_none_is_not_asked_of_the_hub(name):
    with pytest.raises(ModelNotFoundError, match="No model 'x" if len(name) > 1000 else "not a hub id"):
        find_model(name)


@for_each(
    "file, given, sentence",
    [
        ("README.md", ".", "no config.json"),
        ("weights", "weights", "it is a file"),
        ("adapter_config.json", ".", "is a LoRA adapter"),
        ("config.json", "config.json", "is one file of a model. Give its folder"),
    ],
)
def test_a_path_that_is_no_models_folder_is_refused_with_what_it_is(tmp_path, file, given, sentence):
    (tmp_path / file).write_text("{}")
    with pytest.raises(ModelNotFoundError, match=sentence):
        find_model(tmp_path / given)


def test_a_folder_with_paddles_pickles_is_refused_unless_it_has_safetensors_too(tmp_path):
    folder = write_model(tmp_path / "ernie")
    (folder / "model_state.pdparams").write_text("")
    (folder / "model.safetensors").write_bytes(b"")
    assert find_model(folder).folder == folder
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model_state\.pdparams .* as a pickle.*\*\.safetensors"):
        find_model(folder)


# --- tokenizers that must be converted --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def old_style(tmp_path_factory):
    """A model without tokenizer.json, found once: its files, and the cache that was filled."""
    root = tmp_path_factory.mktemp("old-style")
    folder = write_vocabulary(root / "model")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_CACHE", str(root / "cache"))
        yield find_model(folder), root / "cache" / "penstock" / "tokenizers"


def test_a_tokenizer_of_another_form_is_converted_into_the_cache(old_style):
    from transformers import AutoTokenizer

    files, cache = old_style
    assert files.tokenizer_folder.parent == cache and files.tokenizer_folder != files.folder
    assert [path.name for path in cache.iterdir()] == [files.tokenizer_folder.name], "nothing half made is left"
    reference = AutoTokenizer.from_pretrained(files.folder)
    tokenizer = Tokenizer.from_pretrained(files.folder)
    text = "The quick brown fox, 你好!<|end|>"
    assert tokenizer.encode(text) == reference.encode(text)
    assert tokenizer.eos_token == "<|end|>"


def test_a_conversion_is_done_once_for_the_same_content_and_version(old_style, tmp_path, monkeypatch):
    files, _ = old_style
    with monkeypatch.context() as patch:
        patch.setattr(convert_tokenizer, "_convert", lambda *_: pytest.fail("converted again"))
        assert find_tokenizer(files.folder) == files.tokenizer_folder
    other = write_vocabulary(tmp_path)
    assert convert_tokenizer._key(convert_tokenizer._sources(other)) == files.tokenizer_folder.name
    (other / "merges.txt").write_text("#version: 0.2\n")
    assert convert_tokenizer._key(convert_tokenizer._sources(other)) != files.tokenizer_folder.name
    monkeypatch.setattr(convert_tokenizer, "_convert", lambda source, target: (target / "tokenizer.json").touch())
    assert convert_tokenizer._FORMAT > b"1", "the first versions ordered SentencePiece's merges otherwise"
    monkeypatch.setattr(convert_tokenizer, "_FORMAT", convert_tokenizer._FORMAT + b"+")
    assert find_tokenizer(files.folder) != files.tokenizer_folder


def test_a_converted_tokenizer_still_ends_where_its_model_says(old_style):
    files, _ = old_style
    (files.folder / "generation_config.json").write_text('{"eos_token_id": [7]}')
    try:
        assert 7 in Tokenizer(files.tokenizer_folder, files.folder).eos_token_ids
    finally:
        (files.folder / "generation_config.json").unlink()


def test_a_conversion_without_its_packages_names_the_extra_and_all_that_its_class_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    with monkeypatch.context() as patch, pytest.raises(ConfigError, match=r"penstock\[transformers\]"):
        patch.setattr("importlib.util.find_spec", lambda name: None)
        find_model(write_vocabulary(tmp_path / "model"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "google.protobuf" else name)
    (tmp_path / "spiece.model").write_bytes(b"")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5TokenizerFast"}')
    with pytest.raises(ConfigError, match=r"penstock\[transformers\]' sentencepiece protobuf"):
        find_tokenizer(tmp_path)


def test_a_conversion_that_fails_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "packages" / "transformers.py"
    broken.parent.mkdir()
    broken.write_text("import sys\nsys.exit('no sentencepiece here')\n")
    monkeypatch.syspath_prepend(broken.parent)
    with pytest.raises(ConfigError, match="could not convert.*no sentencepiece here.*tokenizer="):
        find_model(write_vocabulary(tmp_path / "model"))
    assert list((tmp_path / "cache" / "penstock" / "tokenizers").iterdir()) == []


def test_the_cache_of_what_was_made_keeps_the_folders_used_last(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    folders = MadeFolders("made", "made folder", "unfinished folder", "file")
    (folders.place / "foreign").mkdir(parents=True)
    for number in range(KEPT + 3):
        make_own(folders.place / f"{number:03}", folders.mark)
        os.utime(folders.place / f"{number:03}", (number, number))
    folders.remove_oldest()
    assert min(path.name for path in folders.place.iterdir()) == "003"
    assert len(list(folders.place.iterdir())) == KEPT + 1
    assert (folders.place / "foreign").is_dir()


@for_each("file", ["config.json", "tokenizer.json", "model-00001-of-00002.safetensors"])
def test_a_pointer_of_git_lfs_is_named_before_a_process_starts(tmp_path, file):
    write_model(tmp_path / "cloned")
    (tmp_path / "cloned" / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
    with pytest.raises(ConfigError, match=rf"{file} is a Git-LFS pointer.* `git lfs pull` in "):
        find_model(tmp_path / "cloned")


# --- which was meant --------------------------------------------------------------------------------------------------


@for_each("name, meant", [("pockt", "pocket"), ("Pocket", "pocket"), ("Qwen/Qwen3-0.6", "Qwen/Qwen3-0.6B")])
def test_a_model_of_nearly_that_name_is_told(name, meant, tmp_path):
    (tmp_path / "models--Qwen--Qwen3-0.6B").mkdir()
    assert nearest_model(name, BUNDLED, str(tmp_path)) == f" Did you mean {meant}?"


def test_so_is_a_folder_beside_one_that_is_not_there(tmp_path):
    (tmp_path / "qwen3-0.6b").mkdir()
    (tmp_path / "notes").mkdir()
    with pytest.raises(ModelNotFoundError, match=f"Did you mean {tmp_path}/qwen3-0.6b?"):
        find_model(tmp_path / "qwen-0.6b")
    assert nearest_model(f"{tmp_path}/llama", BUNDLED, "/nowhere") == ""
