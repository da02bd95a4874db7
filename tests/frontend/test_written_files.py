"""A timeline, a recording and answers take the place of no file that is read, and of an earlier one only in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock import LLM, ConfigError, ModelNotFoundError
from penstock.frontend import cli
from penstock.protocol.errors import PenstockError

BOUND = 60
SMALL = {"max_model_len": 64, "quiet": True, "load_format": "stand-in"}
OPTIONS = ("trace", "record")


@pytest.fixture(scope="module")
def shared_model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("written") / "tiny", "llama")


@pytest.fixture
def model(shared_model, tmp_path) -> Path:
    """Its own names for the same files."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in shared_model.iterdir():
        os.link(path, folder / path.name)
    return folder


@pytest.fixture
def prompts(tmp_path) -> Path:
    return written_prompts(tmp_path)


def written_prompts(folder: Path) -> Path:
    path = folder / "in.jsonl"
    path.write_text("[1, 2]\n")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@for_each("option", OPTIONS)
@for_each("kind", ["name", "hard link", "symbolic link"])
def test_what_is_read_is_not_replaced(tmp_path, option, kind, capsys):
    prompts = written_prompts(tmp_path)
    path = prompts if kind == "name" else tmp_path / "other"
    if kind != "name":
        (os.link if kind == "hard link" else os.symlink)(prompts, path)
    before = contents(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["generate", "pocket", "--input", str(prompts), f"--{option}", str(path)])
    assert "is also read or written" in capsys.readouterr().err and contents(tmp_path) == before


@for_each("option", OPTIONS)
def test_answers_and_a_timeline_need_two_names(tmp_path, option, capsys):
    (tmp_path / "link").symlink_to(tmp_path / "out")  # which isn't there yet
    with pytest.raises(SystemExit):
        cli.main(["generate", "pocket", "hi", "--output", str(tmp_path / "out"), f"--{option}", str(tmp_path / "link")])
    assert "is also read or written" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_timeline_and_a_recording_need_two_names(model, tmp_path):
    with pytest.raises(ConfigError, match="the same file"):
        LLM(model, trace=str(tmp_path / "one"), record=str(tmp_path / "one"), **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@for_each("name", ["config.json", "model.safetensors"])
@for_each("option", OPTIONS)
def test_the_models_own_files_are_not_replaced(model, option, name, capsys):
    before = contents(model)
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, **{option: str(model / name)}, **SMALL)
    with pytest.raises(SystemExit):
        cli.main(["generate", str(model), "hi", "--output", str(model / name)])
    assert "the model is read from" in capsys.readouterr().err and contents(model) == before


def test_a_template_is_not_replaced(model, tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, chat_template=str(tmp_path / "own.jinja"), trace=str(tmp_path / "own.jinja"), **SMALL)


def fail_without_weights(model: Path, **paths: str) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="no safetensors"):
        LLM(model, max_model_len=64, quiet=True, **paths)


def fail_without_memory(model: Path, **paths: str) -> None:
    with pytest.raises(PenstockError, match="holds no KV block"):
        LLM(model, max_model_len=64, quiet=True, kv_cache_memory=1, **paths)


@pytest.mark.parametrize("fail", [pytest.param(fail_without_weights, marks=pytest.mark.long), fail_without_memory])
def test_a_start_that_fails_costs_no_earlier_file(model, tmp_path, fail):
    paths = {option: str(tmp_path / option) for option in OPTIONS}
    for path in paths.values():
        Path(path).write_text("earlier\n")
    fail(model, **paths)
    assert all(Path(path).read_text() == "earlier\n" for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]


def test_a_tree_that_is_ready_has_replaced_them(model, tmp_path):
    paths = {option: tmp_path / option for option in OPTIONS}
    for path in paths.values():
        path.write_text("earlier\n")
        path.chmod(0o640)
    with LLM(model, **{option: str(path) for option, path in paths.items()}, **SMALL) as llm:
        llm.generate([[1, 2]], use_tqdm=False)
    assert b'"detokenize"' in paths["trace"].read_bytes() and b"StepPlan" in paths["record"].read_bytes()
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]


def test_a_device_is_written_to_as_it_is(model):
    with LLM(model, trace=os.devnull, record=os.devnull, **SMALL) as llm:
        assert llm.generate([[1, 2]], use_tqdm=False)
    assert not Path(os.devnull).is_file()


def test_a_folder_that_is_not_there_is_named(model, tmp_path):
    with pytest.raises(ConfigError, match="trace='.*' cannot be written"):
        LLM(model, trace=str(tmp_path / "missing" / "trace"), **SMALL)


def test_standard_input_is_what_is_read_too(prompts, model):
    words = ("generate", str(model), "--input", "-", "--record", str(prompts))
    with open(prompts) as lines:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words], stdin=lines, capture_output=True, text=True, timeout=BOUND
        )
    assert done.returncode == 2 and "is also read or written" in done.stderr and prompts.read_text() == "[1, 2]\n"
