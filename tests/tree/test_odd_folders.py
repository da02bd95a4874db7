"""Folders as they may be: a working folder that was removed, from which models load and answer as from anywhere else;
and names that aren't UTF-8, where a process can't be told of one, that is said.
"""

import os

import pytest
from builders.cases import for_each
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


@pytest.mark.long
def test_a_script_loads_a_real_model():
    """MKL refuses to be loaded there."""
    done = run(REMOVED + REAL)
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr


def test_children_run_in_a_folder_that_is_there_and_a_name_that_is_nowhere_is_told_as_always(
    removed, capsys, monkeypatch, tmp_path
):
    with LLM("pocket", **STAND_IN, quiet=True) as llm:
        assert {os.readlink(f"/proc/{pid}/cwd") for pid in tree_processes(llm).values()} == {"/"}
        assert llm.generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)[0].error_code == 200
    for name in ("no/such-model", "./here", "nothing"):
        assert main(["generate", name, "x"]) == 1
        assert f"No model '{name}' was found" in capsys.readouterr().err
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE", "relative")
    monkeypatch.setenv("PENSTOCK_LOG_DIR", "relative")
    assert main(["generate", "pocket", "x", "--load-format", "stand-in"]) == 1
    assert "PENSTOCK_LOG_DIR=relative cannot be used" in capsys.readouterr().err


# --- names of bytes ---------------------------------------------------------------------------------------------------

NAME = os.fsdecode(b"m\xff")


def test_a_tree_and_a_daemon_run_in_a_folder_of_any_name(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("n") / NAME  # short: a socket's path has 107 bytes at most
    folder.mkdir(mode=0o700)
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


def test_a_folder_of_such_a_name_is_refused_by_whatever_name_and_command_it_is_reached(tmp_path, monkeypatch, capsys):
    folder = tmp_path / NAME
    tiny_model(tmp_path / "plain", "llama").rename(folder)  # safetensors writes to no such name
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    for name in (tmp_path / "link", "."):
        with pytest.raises(ConfigError, match=r"m\\udcff' is not UTF-8"):
            LLM(name, **STAND_IN, quiet=True)
    monkeypatch.chdir(tmp_path)
    for words in ((NAME, "out"), ("pocket", f"{NAME}2")):
        assert main(["convert", *words, "--quantization", "int8", "--quiet"]) == 1
        assert "is not UTF-8" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", NAME]
    done = command("generate", str(folder), "hi", "--load-format", "stand-in")
    assert done.returncode == 2 and r"m\udcff" in done.stderr and "Traceback" not in done.stderr
