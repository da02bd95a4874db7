"""Real starts in folders that hold somebody's own files: all of them stay as they are, and what is ours is bounded."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.canaries import canaries, contents
from builders.starts import STAND_IN, WORDS, command, run
from builders.watching import wait_until

from penstock import ConfigError
from penstock.frontend.console import logs
from penstock.frontend.daemon.address import Address
from penstock.protocol.files.own_folder import MARK
from penstock.protocol.processes.runtime_directory import runtime_base

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


@pytest.mark.long
def test_a_home_that_is_the_runtime_folder_keeps_all_that_it_holds(folder):
    """Every variable as it is for a person whose private home was advised as the place of sockets."""
    before = contents(folder)
    names = {"HOME": str(folder), "PENSTOCK_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": "", "PENSTOCK_LOG_DIR": ""}
    assert run(env={**os.environ, **names, "PENSTOCK_CACHE": ""}).stdout == "3 tokens\n"
    after = contents(folder)
    made = {".cache", ".local", ".local/state"}
    assert after.keys() - before.keys() == made
    assert {name: after[name] for name in before} == before


@pytest.mark.long
@pytest.mark.parametrize("is_swapped", ["folder", "tree"])
def test_a_marked_folder_that_was_replaced_by_a_link_leads_nowhere(is_swapped, environment):
    dead = killed_script()
    replaced = dead if is_swapped == "tree" else dead.parent
    shutil.rmtree(replaced)
    replaced.symlink_to(environment / "thesis")
    before = contents(environment)
    assert run().stdout == "3 tokens\n"
    after = contents(environment)
    assert {name: after[name] for name in before} == before


def test_of_logs_only_those_with_our_mark_are_pruned(environment):
    folder = logs.log_folder()
    (folder / "20000101-000000-000000-1.log").write_text("a diary\n")
    for _ in range(logs._KEPT_LOGS + 5):
        logs.new_log_file(quiet=True)
    assert len(list(folder.glob("*.log"))) == logs._KEPT_LOGS + 1
    assert (folder / "20000101-000000-000000-1.log").read_text() == "a diary\n"


@pytest.mark.long
def test_starts_at_once_neither_sweep_each_other_nor_fail(environment):
    words = [sys.executable, "-c", _STARTED]
    scripts = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        paths = [Path(script.stdout.readline().strip()) for script in scripts]
        assert all((path / "frontend").exists() for path in paths), paths
        assert len({path.parent for path in paths}) == 1
    finally:
        for script in scripts:
            script.communicate("\n", timeout=120)
    wait_until(lambda: not any(path.exists() for path in paths), 60, "all are removed by their owners")


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


def test_what_is_ours_says_so():
    assert "Penstock made this" in (runtime_base() / MARK).read_text()


@pytest.mark.long
def test_a_daemon_takes_the_place_of_nothing_that_is_there(folder):
    before = contents(folder)
    done = command("serve", "pocket", "--socket", str(folder / "thesis" / "engine"), "--no-http", *WORDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is there, and is no socket of a dead daemon's" in done.stderr
    assert contents(folder) == before


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
