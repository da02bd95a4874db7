"""Models in the stores of Ollama, LM Studio and llama.cpp: found by their names, read in place, and never trusted."""

import json
import shutil
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.converted_gguf import write_converted
from builders.stores import KIND, layer, lm_studio_files, ollama_model, only_home, write_manifest
from builders.tokenizer_kinds import write_tokenizer

from penstock.frontend.models.hub.gguf_names import chosen_files, labels
from penstock.frontend.models.model_files import find_model, require_known
from penstock.frontend.models.model_names import GgufName, HubName, gguf_name, name_of
from penstock.frontend.models.stores.stored_models import stored_model, stored_models
from penstock.protocol.errors import ConfigError, ModelNotFoundError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    return only_home(tmp_path, monkeypatch)


@pytest.fixture
def store(home) -> Path:
    return home / ".ollama" / "models"


@for_each("stored, tag, asked", [
    ("qwen3", "latest", "ollama:qwen3"), ("qwen3", "0.6b-q4_K_M", "ollama:qwen3:0.6b-q4_K_M"),
    ("someone/tiny", "latest", "ollama:someone/tiny"),
    ("hf.co/unsloth/Qwen3-0.6B-GGUF", "Q4_K_M", "ollama:hf.co/unsloth/Qwen3-0.6B-GGUF:Q4_K_M"),
])  # fmt: skip
def test_a_model_of_ollamas_is_found_by_the_name_that_ollama_lists_and_left_alone(store, stored, tag, asked):
    shutil.rmtree(store, ignore_errors=True)
    ollama_model(store, stored, b"GGUF model", tag, template=b"{{ .Prompt }}", projector=b"GGUF eyes")
    found = stored_model(asked)
    assert [path.read_bytes() for path in (*found.parts, *found.encoders)] == [b"GGUF model", b"GGUF eyes"]
    assert found.size == len(b"GGUF model" + b"GGUF eyes")
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert [each.name for each in stored_models()] == [f"{asked}{'' if asked.endswith(tag) else ':latest'}"]
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before, "nothing in a store is changed"


def test_the_store_is_where_ollama_models_says_or_at_home_or_the_services(home, monkeypatch):
    ollama_model(home / "service", "tiny", b"of the service")
    assert stored_model("ollama:tiny").parts[0].read_bytes() == b"of the service"
    ollama_model(home / ".ollama/models", "tiny", b"at home")
    assert stored_model("ollama:tiny").parts[0].read_bytes() == b"at home"
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    with pytest.raises(ModelNotFoundError, match="elsewhere/manifests"):
        stored_model("ollama:tiny")


def test_a_name_that_is_not_there_is_told_with_what_was_tried_and_a_near_one(store):
    ollama_model(store, "qwen3", b"GGUF", "0.6b")
    with pytest.raises(ModelNotFoundError) as error:
        stored_model("ollama:qwen3:0.6")
    assert "Did you mean ollama:qwen3:0.6b?" in str(error.value)
    assert str(store / "manifests/registry.ollama.ai/library/qwen3/0.6") in str(error.value)


@for_each("name, meant", [
    ("qwen3:0.6b", "ollama:qwen3:0.6b"), ("tiny", "ollama:tiny:latest"), ("org/tiny-GGUF", "lmstudio:org/tiny-GGUF"),
    ("org/two/b.gguf", "lmstudio:org/two/b.gguf"),
])  # fmt: skip
def test_a_name_without_its_stores_is_told_with_it(home, store, name, meant, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ollama_model(store, "qwen3", b"GGUF", "0.6b")
    ollama_model(store, "tiny", b"GGUF")
    lm_studio_files(home, "org/tiny-GGUF", "tiny.gguf")
    lm_studio_files(home, "org/two", "a.gguf", "b.gguf")
    with pytest.raises(ModelNotFoundError, match=rf"Did you mean {meant}\?"):
        find_model(name)


@for_each("name", ["ollama:../secret", "ollama:a/b/c/d", "ollama:", "ollama:qwen3:../x", "ollama:.hidden"])
def test_a_name_that_leads_out_of_the_store_is_none(home, store, name):
    ollama_model(store, "qwen3", b"GGUF")
    with pytest.raises(ModelNotFoundError, match="a name in Ollama's store is ollama:NAME"):
        stored_model(name)


DIGESTS = ["sha256:../../../../etc/passwd", "sha256:" + "A" * 64, "sha256-" + "a" * 64, "", None, 7, ["sha256:"]]
NO_DIGESTS = [{"layers": [{"mediaType": KIND + "model", "digest": digest, "size": 4}]} for digest in DIGESTS]
NO_MANIFESTS = [[], {}, {"layers": {}}, {"layers": [1]}, {"layers": None}]


@for_each(
    "manifest, sentence",
    [*((each, "is no digest") for each in NO_DIGESTS), *((each, "no manifest of Ollama's") for each in NO_MANIFESTS)],
)
def test_a_manifest_that_is_none_or_names_no_digest_is_refused(store, manifest, sentence):
    ollama_model(store, "tiny", b"GGUF").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=sentence):
        stored_model("ollama:tiny")
    [listed] = stored_models()
    assert listed.files is None and sentence in listed.refusal


def test_a_blob_of_another_size_or_kind_or_none_is_refused(store):
    manifest = ollama_model(store, "tiny", b"GGUF")
    [blob] = (store / "blobs").iterdir()
    for change, sentence in (
        (lambda: blob.write_bytes(b"GGUF and more"), "has 13 bytes, and .* says 4"),
        (blob.unlink, "which is not there"), (blob.mkdir, "it is a folder"),
        (lambda: manifest.write_bytes(b"{"), "not valid JSON"),
        (lambda: write_manifest(manifest, [layer(store, "params", b"{}")]), "no GGUF file"),
    ):  # fmt: skip
        change()
        with pytest.raises(ConfigError, match=sentence):
            stored_model("ollama:tiny")


def test_a_model_with_an_adapter_or_in_a_broken_file_is_refused(store, own_cache):
    ollama_model(store, "tuned", b"GGUF", adapter=b"GGUF adapter")
    with pytest.raises(ConfigError, match="LoRA adapter"):
        stored_model("ollama:tuned")
    ollama_model(store, "cut", b"GGUF")
    with pytest.raises(ConfigError, match=r"^ollama:cut can't be loaded\. sha256-.* it ends after 4 bytes"):
        find_model("ollama:cut")


def test_a_stored_model_is_a_model(home, store, own_cache):
    ollama_model(store, "tiny", write_converted(home / "tiny.gguf", "llama").read_bytes())
    tokenizer = write_tokenizer(home / "tokenizer", "byte_level")
    found = find_model("ollama:tiny", tokenizer)
    assert (found.name, name_of(found.name)) == ("ollama:tiny", "ollama:tiny")
    assert json.loads((found.folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert find_model("ollama:tiny", tokenizer).folder == found.folder
    require_known("ollama:tiny")
    with pytest.raises(ModelNotFoundError):
        require_known("ollama:other")


def test_a_model_of_lm_studios_is_found_by_its_repository_and_its_file(home):
    folder = lm_studio_files(home, "org/tiny-GGUF", "tiny-Q4_K_M.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf")
    found = stored_model("lmstudio:org/tiny-GGUF")
    assert found.parts == (folder / "tiny-Q4_K_M.gguf",)
    assert found.encoders == (folder / "mmproj-F16.gguf", folder / "mmproj-BF16.gguf")
    assert stored_model("lmstudio:org/tiny-GGUF/tiny-Q4_K_M.gguf") == found
    assert [each.name for each in stored_models()] == ["lmstudio:org/tiny-GGUF"]


def test_several_models_of_a_folder_are_named_and_parts_are_one_of_which_a_missing_one_is_named(home):
    lm_studio_files(home, "org/tiny", "tiny-Q4_0.gguf", "tiny-Q8_0.gguf")
    with pytest.raises(ConfigError, match=r"2 models.*lmstudio:org/tiny/tiny-Q4_0\.gguf"):
        stored_model("lmstudio:org/tiny")
    assert [each.name.rpartition("/")[2] for each in stored_models()] == ["tiny-Q4_0.gguf", "tiny-Q8_0.gguf"]
    parts = [f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    folder = lm_studio_files(home, "org/big", *parts)
    assert [path.name for path in stored_model("lmstudio:org/big").parts] == parts
    (folder / parts[1]).unlink()
    with pytest.raises(ConfigError, match="big-00002-of-00002.gguf"):
        stored_model("lmstudio:org/big")
    assert [each.name for each in stored_models() if each.files is None] == ["lmstudio:org/big"]


def test_llama_cpps_downloads_are_listed_by_their_files(home):
    folder = home / ".cache" / "llama.cpp"
    folder.mkdir(parents=True)
    for name in ("a.gguf", "mmproj-a.gguf", "a.gguf.json", ".b.gguf"):
        (folder / name).write_bytes(b"GGUF")
    assert [each.name for each in stored_models()] == [str(folder / "a.gguf")]


REPOSITORY = [
    *("README.md", "config.json", "Qwen3-Q4_K_M.gguf", "Qwen3-Q8_0.gguf", "Qwen3-UD-Q4_K_XL.gguf", "Qwen3-Q4_K_S.gguf"),
    *("mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "imatrix.gguf", "../evil-Q5_K_M.gguf"),
    *(f"BF16/Qwen3-BF16-0000{number}-of-00002.gguf" for number in (2, 1)),
]


@for_each("asked, files", [
    ("Q4_K_M", ["Qwen3-Q4_K_M.gguf"]), ("q8_0", ["Qwen3-Q8_0.gguf"]), ("UD-Q4_K_XL", ["Qwen3-UD-Q4_K_XL.gguf"]),
    ("BF16", [f"BF16/Qwen3-BF16-0000{number}-of-00002.gguf" for number in (1, 2)]),
])  # fmt: skip
def test_the_files_of_one_quantization_are_chosen_with_its_encoder(asked, files):
    assert chosen_files(REPOSITORY, gguf_name(f"org/Qwen3-GGUF:{asked}")) == (files, "mmproj-F16.gguf")


def test_another_quantization_is_told_with_those_there_are():
    meant = r"has no Q4_K_L. Did you mean org/Qwen3-GGUF:Q4_K_[MS]\? There are BF16, Q4_K_M"
    with pytest.raises(ConfigError, match=meant):
        chosen_files(REPOSITORY, gguf_name("org/Qwen3-GGUF:Q4_K_L"))
    assert labels(REPOSITORY) == ["BF16", "Q4_K_M", "Q4_K_S", "Q8_0", "UD-Q4_K_XL"]
    with pytest.raises(ConfigError, match="1 of 2 parts"):
        chosen_files(REPOSITORY[:-1], gguf_name("org/Qwen3-GGUF:BF16"))
    with pytest.raises(ConfigError, match="holds no GGUF files"):
        chosen_files(["model.safetensors"], gguf_name("org/Qwen3-GGUF:Q4_K_M"))
    assert gguf_name("org/name@v1:UD-Q2_K_XL") == GgufName(HubName("org/name", "v1"), "UD-Q2_K_XL")
    assert {gguf_name(name) for name in ("org/name", "a/b/c:Q4_0", "org/name:", "/x:Q4_0", "org/name:../x")} == {None}
