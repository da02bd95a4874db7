"""Names that aren't UTF-8: folders of ours may have them, and where a process can't be told of one, that is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, ConfigError
from penstock.frontend import cli
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.attach import daemon_socket
from penstock.protocol.options.config import EngineConfig

SMALL = {"max_model_len": 64, "quiet": True, "load_format": "stand-in"}
NAME = os.fsdecode(b"m\xff")
BOUND = 60


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
    with LLM("pocket", **SMALL) as llm:
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


@pytest.mark.parametrize("option", ["model", "tokenizer", "trace", "record", "chat_template", "tool_parser_plugin"])
def test_an_option_that_names_such_a_file_is_refused(option, tmp_path):
    options = {"model": "pocket", option: tmp_path / NAME}
    with pytest.raises(ConfigError, match=rf"{option}=.*m\\udcff.* in UTF-8"):
        EngineConfig.from_options(**options)


def test_a_folder_of_such_a_name_is_refused_where_it_is_reached_by_another(folder, short_folder, monkeypatch):
    with_a_model(folder)
    (short_folder / "link").symlink_to(folder)
    with pytest.raises(ConfigError, match=r"m\\udcff' is not UTF-8"):
        LLM(short_folder / "link", **SMALL)
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"m\\udcff' is not UTF-8"):
        LLM(".", **SMALL)


@pytest.mark.parametrize("words", [(NAME, "out"), ("pocket", NAME)])
def test_a_conversion_says_so_before_it_begins(words, folder, short_folder, monkeypatch, capsys):
    with_a_model(folder)
    monkeypatch.chdir(short_folder)
    if words[0] == "pocket":
        words = ("pocket", f"{NAME}2")
    assert cli.main(["convert", *words, "--quantization", "int8", "--quiet"]) == 1
    assert "is not UTF-8" in capsys.readouterr().err
    assert [path.name for path in short_folder.iterdir()] == [NAME]


def test_the_command_line_says_it_without_a_traceback(folder):
    words = ("generate", str(folder), "hi", "--load-format", "stand-in")
    done = subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 2 and r"m\udcff" in done.stderr and "Traceback" not in done.stderr
