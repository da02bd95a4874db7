"""Folders as they may be: a working folder that was removed, from which models load and answer as from anywhere else;
and names that aren't UTF-8, where a process can't be told of one, that is said.
"""

import os
import shutil
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.daemon import running_daemon, wait_for
from builders.starts import ANSWERS, STAND_IN, command, run
from builders.tiny_model import tiny_model
from builders.watching import tree_processes

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.cli import main
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.attach import daemon_socket
from penstock.protocol.options.config import EngineConfig

REMOVED = "import os, tempfile; folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)\n"
REAL = ANSWERS.replace("'load_format': 'stand-in', ", "")


@pytest.fixture
def removed(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    folder.rmdir()
    yield
    os.chdir(before)


def test_children_run_in_a_folder_that_is_there(removed):
    with LLM("pocket", **STAND_IN, quiet=True) as llm:
        assert {os.readlink(f"/proc/{pid}/cwd") for pid in tree_processes(llm).values()} == {"/"}
        assert llm.generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)[0].error_code == 200


@pytest.mark.long
def test_a_script_loads_a_real_model():
    """MKL refuses to be loaded there."""
    done = run(REMOVED + REAL)
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr


def test_a_name_that_is_nowhere_is_told_as_always(removed, capsys, monkeypatch, tmp_path):
    for name in ("no/such-model", "./here", "nothing"):
        assert main(["generate", name, "x"]) == 1
        assert f"No model '{name}' was found" in capsys.readouterr().err
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE", "relative")
    monkeypatch.setenv("PENSTOCK_LOG_DIR", "relative")
    assert main(["generate", "pocket", "x", "--load-format", "stand-in"]) == 1
    assert "PENSTOCK_LOG_DIR=relative cannot be used" in capsys.readouterr().err


@pytest.mark.long
def test_every_load_of_a_daemon_works(tmp_path, monkeypatch):
    """It was started in the folder; a model comes, goes and comes again, with a template of the client's."""
    (tmp_path / "s").mkdir()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with running_daemon(tmp_path / "s", "pocket", "--keep-alive", "0", "--max-model-len", "256") as daemon:
        shutil.rmtree(tmp_path / "gone")
        monkeypatch.chdir(tmp_path)
        for _ in range(2):
            with daemon.attach() as llm:
                said = [{"role": "user", "content": "x"}]
                [output] = llm.chat(said, SamplingParams(max_tokens=2), use_tqdm=False, chat_template="{{ messages }}")
                assert output.error_code == 200, output.error_msg
            wait_for(lambda: daemon.model().state == "unloaded", "nobody uses it")


@pytest.mark.long
def test_commands_work(removed, tmp_path):
    assert run(REMOVED + "from penstock.frontend.cli import main; main(['models'])").returncode == 0
    assert command("convert", "pocket", str(tmp_path / "out"), "--quantization", "int8", "--quiet").returncode == 0
    assert LLM(tmp_path / "out", max_model_len=256, quiet=True).close() is None


# --- names of bytes ---------------------------------------------------------------------------------------------------

NAME = os.fsdecode(b"m\xff")


@pytest.fixture
def folder(short_folder) -> Path:
    folder = short_folder / NAME
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def short_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("n")


def with_a_model(folder: Path) -> None:
    """Renamed: safetensors writes to no such name."""
    folder.rmdir()
    tiny_model(folder.with_name("plain"), "llama").rename(folder)


def test_a_tree_and_a_daemon_run_in_a_folder_of_any_name(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(folder))
    with LLM("pocket", **STAND_IN, quiet=True) as llm:
        assert llm.generate([[1, 2]], use_tqdm=False)[0].error_code == 200
    address = daemon_socket()
    start_daemon(["--no-http"], address)
    try:
        line = line_to(address)
        status = status_of(line)
        line.close()
    finally:
        stop_daemon(address, 0.0)
    assert r"m\xff" in status.address and r"m\xff" in status.log


@for_each("option", ["model", "tokenizer", "trace", "record", "chat_template", "tool_parser_plugin"])
def test_an_option_that_names_such_a_file_is_refused(option, tmp_path):
    options = {"model": "pocket", option: tmp_path / NAME}
    with pytest.raises(ConfigError, match=rf"{option}=.*m\\udcff.* in UTF-8"):
        EngineConfig.from_options(**options)


def test_a_folder_of_such_a_name_is_refused_where_it_is_reached_by_another(folder, short_folder, monkeypatch):
    with_a_model(folder)
    (short_folder / "link").symlink_to(folder)
    with pytest.raises(ConfigError, match=r"m\\udcff' is not UTF-8"):
        LLM(short_folder / "link", **STAND_IN, quiet=True)
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"m\\udcff' is not UTF-8"):
        LLM(".", **STAND_IN, quiet=True)


@pytest.mark.parametrize("words", [(NAME, "out"), ("pocket", NAME)])
def test_a_conversion_says_so_before_it_begins(words, folder, short_folder, monkeypatch, capsys):
    with_a_model(folder)
    monkeypatch.chdir(short_folder)
    if words[0] == "pocket":
        words = ("pocket", f"{NAME}2")
    assert main(["convert", *words, "--quantization", "int8", "--quiet"]) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    assert [path.name for path in short_folder.iterdir()] == [NAME]


def test_the_command_line_says_it_without_a_traceback(folder):
    words = ("generate", str(folder), "hi", "--load-format", "stand-in")
    done = command(*words)
    assert done.returncode == 2 and r"m\udcff" in done.stderr and "Traceback" not in done.stderr
