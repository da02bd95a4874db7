"""GGUF files on a hub: the files of one quantization are downloaded, and found again without a network."""

import pytest
from builders.gguf_file import write_gguf
from builders.hub import hub_with_empty_cache
from builders.tiny_model import tiny_model

from penstock.frontend import cli
from penstock.frontend.models.model_files import find_model, require_known
from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.worker.convert.convert import convert

NAME = "owner/tiny-GGUF"


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("made")
    source, target = tiny_model(folder / "tiny", "qwen3"), folder / "tiny.gguf"
    convert(Conversion(str(source), str(source), str(target), "q8_0", is_gguf=True), lambda said: None)
    return target.read_bytes()


@pytest.fixture
def hub(tmp_path, monkeypatch, content):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    with hub_with_empty_cache(tmp_path / "hub", monkeypatch) as running:
        models = {"tiny-Q8_0.gguf": content, "tiny-Q4_K_M.gguf": content + bytes(32)}
        eyes = write_gguf(tmp_path / "eyes.gguf", {"general.architecture": "clip"}).read_bytes()
        others = {"mmproj-F16.gguf": eyes, "mmproj-F32.gguf": eyes + bytes(32), "README.md": b"x"}
        running.put(NAME, files=models | others)
        yield running


def test_only_the_files_of_the_quantization_are_taken_also_by_pull(hub, tmp_path, capsys):
    found = find_model(f"{NAME}:Q8_0", is_quiet=True)
    assert (found.folder / "config.json").is_file() and (found.tokenizer_folder / "tokenizer.json").is_file()
    assert set(hub.fetched()) == {"tiny-Q8_0.gguf", "mmproj-F16.gguf"}
    assert {path.name for path in (tmp_path / "hub").rglob("*.gguf")} == {"mmproj-F16.gguf", "tiny-Q8_0.gguf"}
    assert cli.main(["pull", f"{NAME}:Q4_K_M", "--quiet"]) == 0
    assert f"{NAME}:Q4_K_M is ready" in capsys.readouterr().out and "tiny-Q4_K_M.gguf" in hub.fetched()


def test_what_is_there_runs_without_the_hub_and_is_not_fetched_again(hub):
    found = find_model(f"{NAME}:q8_0", is_quiet=True)
    fetched = list(hub.fetched())
    assert find_model(f"{NAME}:q8_0", is_quiet=True) == found and hub.fetched() == fetched
    hub.status = 503
    assert find_model(f"{NAME}:q8_0", is_quiet=True) == found
    with pytest.raises(ModelNotFoundError, match="Q4_K_M"):
        find_model(f"{NAME}:Q4_K_M", is_quiet=True)


def test_a_quantization_that_is_not_there_is_told_with_those_that_are(hub):
    with pytest.raises(ConfigError, match=r"has no Q5_K_M\..* There are Q4_K_M, Q8_0\."):
        find_model(f"{NAME}:Q5_K_M", is_quiet=True)
    with pytest.raises(
        ConfigError, match=rf"its weights are GGUF files, Q4_K_M, Q8_0. Name one of them: {NAME}:Q4_K_M"
    ):
        find_model(NAME, is_quiet=True)
    assert not hub.fetched()
    require_known(f"{NAME}:Q8_0")
    with pytest.raises(ModelNotFoundError):
        require_known("owner/other:Q8_0")
