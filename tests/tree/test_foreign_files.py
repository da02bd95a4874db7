"""Real starts in folders that hold somebody's own files: all of them stay as they are, and what is ours is bounded.

And in a working folder that was removed, from which models load and answer as from anywhere else; of names that aren't
UTF-8, where a process can't be told of one, that is said.
"""

import itertools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.canaries import canaries, contents
from builders.cases import for_each
from builders.starts import STAND_IN, command, run
from builders.tiny_model import tiny_model
from builders.watching import tree_processes

from penstock import LLM, ConfigError, SamplingParams
from penstock.frontend.cli import main
from penstock.frontend.console import logs
from penstock.frontend.daemon.address import Address
from penstock.frontend.daemon.background import line_to, start_daemon, status_of, stop_daemon
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.runtime_directory import daemon_socket

_STARTED = f"""
from penstock import LLM
llm = LLM("pocket", **{STAND_IN!r}, quiet=True)
print(llm._session.transport.tree.directory.path, flush=True)
input()
"""


@pytest.fixture
def folder():
    """Short: a socket's path has 107 bytes at most."""
    with TemporaryDirectory(prefix="pf") as folder:
        yield canaries(Path(folder))


@pytest.fixture
def environment(folder, monkeypatch):
    for name in ("PENSTOCK_RUNTIME_DIR", "PENSTOCK_LOG_DIR", "PENSTOCK_CACHE"):
        monkeypatch.setenv(name, str(folder))
    return folder


def killed_script() -> Path:
    with subprocess.Popen(
        [sys.executable, "-c", _STARTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as script:
        path = Path(script.stdout.readline().strip())
        assert path.is_dir()
        script.send_signal(signal.SIGKILL)
    return path


def test_a_start_sweeps_what_dead_trees_left_and_nothing_else(environment):
    before = contents(environment)
    dead = killed_script()
    assert dead.is_dir()
    assert contents(environment) == before
    assert run().stdout == "3 tokens\n"
    assert not dead.exists()
    assert contents(environment) == before


def test_of_logs_only_those_with_our_mark_are_pruned_or_put_aside(environment, monkeypatch, capsys):
    folder = logs.log_folder()
    (folder / "20000101-000000-000000-1.log").write_text("a diary\n")
    for _ in range(logs._KEPT_LOGS + 5):
        logs.new_log_file(quiet=True)
    assert len(list(folder.glob("*.log"))) == logs._KEPT_LOGS + 1
    assert (folder / "20000101-000000-000000-1.log").read_text() == "a diary\n"
    monkeypatch.setattr(logs, "_DAEMON_LOG_BYTES", 10)
    address = daemon_socket()
    log, before = logs.ready_daemon_log(address), logs.daemon_log(address).with_name("daemon.before.txt")
    log.write_text(log.read_text() + "first\n")
    assert logs.ready_daemon_log(address) == log and before.read_text().endswith("first\n")
    before.write_text("a diary\n")
    logs.ready_daemon_log(address)
    assert before.read_text() == "a diary\n"
    log.write_text("another diary\n")
    assert logs.ready_daemon_log(address) == Path(os.devnull)
    others = [logs.ready_daemon_log(folder / f"socket {number}") for number in range(logs._KEPT_LOGS + 5)]
    assert [each.exists() for each in others] == [False] * 5 + [True] * logs._KEPT_LOGS
    assert log.read_text() == "another diary\n" and "PENSTOCK_LOG_DIR" in capsys.readouterr().err
    assert logs.ready_daemon_log(folder / "socket 5") == others[5]  # the oldest, which is its own
    assert others[5].with_suffix(".before.txt").exists()


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))


def test_only_a_socket_beside_our_lock_is_removed_and_a_dead_daemons_is_replaced(folder):
    makers = (Path.mkdir, Path.touch, bound, lambda path: path.symlink_to(path.parent / "thesis"))
    for number, (make, lock) in enumerate(itertools.product(makers, (None, "", "their lock"))):
        path = folder / f"socket{number}"
        make(path)
        if lock is not None:
            path.with_name(f"{path.name}.lock").write_text(lock)
        before = contents(folder)
        with pytest.raises(ConfigError, match="Name another --socket"), Address(path):
            pass
        assert contents(folder) == before, (make, lock)
    with Address(folder / "socket") as address:
        address.listen().close()  # and dies
    with Address(folder / "socket") as address:
        address.listen().close()
        (folder / "socket").unlink()
        (folder / "socket").write_text("years of work\n")
        address.remove()
    assert (folder / "socket").read_text() == "years of work\n"


# --- folders as they may be -------------------------------------------------------------------------------------------


@pytest.fixture
def removed(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    folder.rmdir()
    yield
    os.chdir(before)


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
