"""`penstock models`: which models are listed, what is said of each, and the exit status."""

import re
from pathlib import Path

import msgspec
import pytest
from builders.cases import for_each
from builders.gguf_file import write_gguf
from builders.stores import lm_studio_files, ollama_model, only_home
from builders.tiny_model import tiny_model
from huggingface_hub import constants

from penstock.frontend import cli
from penstock.frontend.commands import models
from penstock.frontend.models import model_files
from penstock.protocol.conversion import Conversion
from penstock.protocol.survey import GpuSurvey, ModelSurvey, Survey, TorchSurvey
from penstock.worker.convert.convert import convert

GIB = 1 << 30
TAKES = {"stored_bytes": GIB, "cpu_bytes": 2 * GIB, "kv_bytes": 200 << 20, "taken_bytes": 4 * GIB}
FITS = ModelSurvey(family="qwen3", context=32768, **TAKES)


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch) -> Path:
    """An empty hub cache, no stores of other programs, and nothing bundled."""
    cache = tmp_path / "hub"
    only_home(tmp_path, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    for name in model_files.BUNDLED:
        monkeypatch.setitem(model_files.BUNDLED, name, tmp_path / "nothing")
    return cache


def cached(cache: Path, name: str, family: str = "qwen3") -> None:
    """A model as a download leaves it: files in `blobs`, links to them in a snapshot."""
    repo = cache / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / "0123abcd"
    for number, path in enumerate(sorted(tiny_model(cache.parent / "made" / name, family).iterdir())):
        blob = repo / "blobs" / str(number)
        for folder in (blob.parent, snapshot):
            folder.mkdir(parents=True, exist_ok=True)
        path.rename(blob)
        (snapshot / path.name).symlink_to(blob)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0123abcd")


def answered(monkeypatch, *found: ModelSurvey, available: int = 8 * GIB, torch: TorchSurvey | None = None) -> None:
    survey = Survey(available_bytes=available, families=["Qwen3ForCausalLM"], models=list(found), torch=torch)
    monkeypatch.setattr(models, "ask_survey", lambda folders, with_torch: survey)


def listed(capsys, *words: object) -> tuple[int, list[str]]:
    status = cli.main(["models", *map(str, words)])
    return status, capsys.readouterr().out.splitlines()


def columns(line: str) -> list[str]:
    """A name may be a path with single spaces."""
    return re.split(" {2,}", line)


def test_bundled_and_cached_models_are_listed_with_what_they_take(capsys, own_places, tmp_path, monkeypatch):
    status, lines = listed(capsys)
    assert status == 1 and "There are no models" in lines[0]
    monkeypatch.setitem(model_files.BUNDLED, "pocket", tiny_model(tmp_path / "bundled", "qwen3"))
    cached(own_places, "someone/tiny-llama", "llama")
    status, lines = listed(capsys)
    assert status == 0
    assert lines[0].split() == ["model", "on", "disk", "family", "gives", "context", "runs", "here"]
    assert [line.split()[0] for line in lines[1:3]] == ["pocket", "someone/tiny-llama"]
    assert [line.split()[3] for line in lines[1:3]] == ["qwen3", "llama"]
    assert all("1,024  yes, takes" in line for line in lines[1:3])
    (tmp_path / "here" / "pocket").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    status, lines = listed(capsys, "pocket")
    names = [line.split()[0] for line in lines[1:-2]]
    assert (status, names) == (0, ["pocket"]), "it alone; its name goes before a folder's"


def test_a_folder_of_models_lists_each_and_a_models_folder_itself(capsys, tmp_path):
    for family in ("llama", "qwen2"):
        tiny_model(tmp_path / "all" / family, family)
    (tmp_path / "all" / "notes").mkdir()
    assert [columns(line)[2] for line in listed(capsys, tmp_path / "all")[1][1:3]] == ["llama", "qwen2"]
    assert len(listed(capsys, tmp_path / "all" / "llama")[1]) == 4


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n"


@for_each("file, content, sentence", [
    ("config.json", '{"architectures": ["HeliumForCausalLM"]}', "names the architecture HeliumForCausalLM"),
    ("tokenizer.json", None, "no: it holds no tokenizer, neither tokenizer.json nor a vocabulary"),
    *((name, POINTER, f"{name} is a Git-LFS pointer") for name in ("model.safetensors", "config.json")),
    ("tokenizer.json", POINTER, "tokenizer.json is a Git-LFS pointer"),
])  # fmt: skip
def test_a_model_that_would_not_load_says_why_on_its_line(capsys, tmp_path, file, content, sentence):
    path = tiny_model(tmp_path / "odd", "llama") / file
    path.unlink() if content is None else path.write_text(content)
    status, lines = listed(capsys, tmp_path / "odd")
    assert status == 1 and any(sentence in line for line in lines), lines


MAPPED = msgspec.structs.replace(FITS, largest_bytes=GIB // 2)


@for_each("found, free, status, verdict", [
    (FITS, 8 * GIB, 0, "yes, takes 4.0 GiB"),
    (msgspec.structs.replace(FITS, cut_for=2), 8 * GIB, 0, "yes, takes 4.0 GiB with tensor_parallel_size=2"),
    (FITS, GIB, 1, "no: needs 2.2 GiB, 1.2 GiB more than are free"),
    (MAPPED, GIB, 0, "yes, slowly from the disk: needs 2.2 GiB, 1.2 GiB more than are free"),
    (MAPPED, GIB // 2, 1, "no: needs 2.2 GiB, 1.7 GiB more than are free"),
])  # fmt: skip
def test_whether_a_model_fits_is_told_with_what_it_takes(found, free, status, verdict, capsys, tmp_path, monkeypatch):
    tiny_model(tmp_path / "model", "qwen3")
    answered(monkeypatch, found, available=free)
    told = listed(capsys, tmp_path / "model")
    assert told[0] == status and told[1][1].endswith(f"  {verdict}"), told


def test_with_a_card_its_free_memory_counts_and_the_weights_as_stored(capsys, tmp_path, monkeypatch):
    tiny_model(tmp_path / "model", "qwen3")
    answered(monkeypatch, FITS, available=GIB, torch=TorchSurvey(cards=[GpuSurvey("A card", 10 * GIB, 3 * GIB)]))
    status, lines = listed(capsys, tmp_path / "model")
    assert status == 0
    assert lines[1].endswith("yes, takes 2.0 GiB")
    assert lines[-1].startswith("2.0 GiB free on A card.")


@for_each("name, sentence", [
    ("nowhere", "is not a folder, a bundled model"), ("empty", "holds no model"),
    ("tiny-Q8.gguf", "which holds tiny-Q8_0.gguf."),
])  # fmt: skip
def test_a_path_that_is_none_or_holds_none_is_a_wrong_command_line(name, sentence, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "tiny-Q8_0.gguf").touch()
    with pytest.raises(SystemExit) as end:
        cli.main(["models", str(tmp_path / name)])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.fixture
def gguf(tmp_path) -> Path:
    source = tiny_model(tmp_path / "made" / "tiny", "qwen3")
    target = tmp_path / "files" / "tiny-Q8_0.gguf"
    convert(Conversion(str(source), str(source), str(target), "q8_0", is_gguf=True), lambda said: None)
    return target


def test_gguf_files_are_listed_with_what_they_take_by_store_name_and_folder(capsys, tmp_path, gguf):
    content = gguf.read_bytes()
    ollama_model(tmp_path / ".ollama" / "models", "tiny", content, tag="1b")
    lm_studio_files(tmp_path, "org/tiny", "tiny.gguf", content=content)
    lm_studio_files(tmp_path, "org/broken", "broken.gguf", content=content[:100])
    write_gguf(lm_studio_files(tmp_path, "org/strange") / "strange.gguf", {"general.architecture": "strange"})
    status, lines = listed(capsys)
    assert status == 0
    assert [line.split()[0] for line in lines[1:-2]] == [
        "ollama:tiny:1b", "lmstudio:org/broken", "lmstudio:org/strange", "lmstudio:org/tiny"
    ]  # fmt: skip
    assert all("qwen3" in line and "1,024  yes, takes" in line for line in (lines[1], lines[4])), lines
    assert "no: broken.gguf can't be used" in lines[2]
    assert "no: strange.gguf can't be used: it " in lines[3]
    (gguf.parent / "mmproj-F16.gguf").write_bytes(b"GGUF")
    status, lines = listed(capsys, "ollama:tiny:1b", gguf, gguf.parent)
    assert status == 0
    assert [columns(line)[0] for line in lines[1:-2]] == ["ollama:tiny:1b", str(gguf), str(gguf)]
    assert cli.main(["models", "ollama:nowhere"]) == 1
    assert "No model 'ollama:nowhere' was found" in capsys.readouterr().err
