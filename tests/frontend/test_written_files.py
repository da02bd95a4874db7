"""A timeline, a recording and answers take the place of no file that is read, and of an earlier one only in the end."""

import os
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock import LLM, ConfigError
from penstock.frontend import cli
from penstock.protocol.errors import PenstockError

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


def test_files_that_cannot_be_written_are_refused(model, tmp_path):
    one, own = str(tmp_path / "one"), tmp_path / "own.jinja"
    with pytest.raises(ConfigError, match="the same file"):
        LLM(model, trace=one, record=one, **SMALL)
    with pytest.raises(ConfigError, match="trace='.*' cannot be written"):
        LLM(model, trace=str(tmp_path / "missing" / "trace"), **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    own.write_text("{{ messages[0].content }}")
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, chat_template=str(own), trace=str(own), **SMALL)


@for_each("option", OPTIONS)
def test_answers_and_a_timeline_need_two_names(tmp_path, option, capsys):
    (tmp_path / "link").symlink_to(tmp_path / "out")  # which isn't there yet
    with pytest.raises(SystemExit):
        cli.main(["generate", "pocket", "hi", "--output", str(tmp_path / "out"), f"--{option}", str(tmp_path / "link")])
    assert "is also read or written" in capsys.readouterr().err and not (tmp_path / "out").exists()


@for_each("name", ["config.json", "model.safetensors"])
@for_each("option", OPTIONS)
def test_the_models_own_files_are_not_replaced(model, option, name, capsys):
    before = (model / name).read_bytes()
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, **{option: str(model / name)}, **SMALL)
    with pytest.raises(SystemExit):
        cli.main(["generate", str(model), "hi", "--output", str(model / name)])
    assert "the model is read from" in capsys.readouterr().err and (model / name).read_bytes() == before


def test_a_start_that_fails_in_the_worker_costs_no_earlier_file(model, tmp_path, monkeypatch):
    paths = {option: str(tmp_path / option) for option in OPTIONS}
    for path in paths.values():
        Path(path).write_text("earlier\n")
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=error")
    with pytest.raises(PenstockError):
        LLM(model, **SMALL, **paths)
    assert all(Path(path).read_text() == "earlier\n" for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]


def test_a_tree_that_is_ready_has_replaced_files_and_written_to_a_device_as_it_is(model, tmp_path):
    paths = {option: tmp_path / option for option in OPTIONS}
    for path in paths.values():
        path.write_text("earlier\n")
        path.chmod(0o640)
    with LLM(model, trace=os.devnull, record=os.devnull, **SMALL) as llm:
        assert llm.generate([[1, 2]], use_tqdm=False) and not Path(os.devnull).is_file()
    with LLM(model, **{option: str(path) for option, path in paths.items()}, **SMALL) as llm:
        llm.generate([[1, 2]], use_tqdm=False)
    assert b'"detokenize"' in paths["trace"].read_bytes() and b"StepPlan" in paths["record"].read_bytes()
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]
