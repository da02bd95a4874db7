"""Real starts in folders that hold somebody's own files: all of them stay as they are, and what is ours is bounded."""

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
from builders.starts import STAND_IN, run

from penstock import ConfigError
from penstock.frontend.console import logs
from penstock.frontend.daemon.address import Address

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
    """All that Penstock keeps, in the folder with the canaries."""
    for name in ("PENSTOCK_RUNTIME_DIR", "PENSTOCK_LOG_DIR", "PENSTOCK_CACHE"):
        monkeypatch.setenv(name, str(folder))
    return folder


def killed_script() -> Path:
    """The folder of a tree whose owner was killed."""
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


def test_of_logs_only_those_with_our_mark_are_pruned(environment):
    folder = logs.log_folder()
    (folder / "20000101-000000-000000-1.log").write_text("a diary\n")
    for _ in range(logs._KEPT_LOGS + 5):
        logs.new_log_file(quiet=True)
    assert len(list(folder.glob("*.log"))) == logs._KEPT_LOGS + 1
    assert (folder / "20000101-000000-000000-1.log").read_text() == "a diary\n"


def test_a_daemons_log_is_put_aside_only_as_ours(environment, monkeypatch, capsys):
    monkeypatch.setattr(logs, "_DAEMON_LOG_BYTES", 10)
    log, before = logs.ready_daemon_log(), logs.daemon_log().with_name("daemon.before.txt")
    log.write_text(log.read_text() + "first\n")
    assert logs.ready_daemon_log() == log and before.read_text().endswith("first\n")
    before.write_text("a diary\n")
    logs.ready_daemon_log()
    assert before.read_text() == "a diary\n"
    log.write_text("another diary\n")
    assert logs.ready_daemon_log() == Path(os.devnull)
    assert log.read_text() == "another diary\n" and "PENSTOCK_LOG_DIR" in capsys.readouterr().err


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))


def test_only_a_socket_beside_our_lock_is_removed(folder):
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


def test_a_dead_daemons_socket_is_replaced_and_another_file_of_its_name_is_left(folder):
    with Address(folder / "socket") as address:
        address.listen().close()  # and dies
    with Address(folder / "socket") as address:
        address.listen().close()
        (folder / "socket").unlink()
        (folder / "socket").write_text("years of work\n")
        address.remove()
    assert (folder / "socket").read_text() == "years of work\n"
