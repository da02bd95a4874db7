"""`scripts/check_gpu` refuses what it can't do, goes on after failures, ends all that it started, and is rehearsed."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders.cases import for_each
from builders.watching import wait_until

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_gpu"
# A Python whose parts end with the status in MACHINE, or begin something in a session of its own and wait.
STUB = """#!/usr/bin/env bash
case "$*" in
    "-c "*) exit 0 ;;
    *machine.py*)
        cat "$TRITON_CACHE_DIR"/KEY/__grp__kernel.json | sed -E 's/.*: "(.*)".*/\\1/' | xargs cat
        [[ ${MACHINE:-} ]] && exit "$MACHINE" ;;
    *bench_gpu*) echo "a figure"; exit 0 ;;
esac
setsid sleep 1000 &
echo $! >"$STARTED"
exec sleep 1000
"""


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    return {**os.environ, "PYTHON": str(stub), "STARTED": str(tmp_path / "started")}


def checked(given: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**given, **more}
    return subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=120)


def test_help_says_how_it_is_used(given):
    for words in (["-h"], ["--help"], ["somewhere", "--help"]):
        found = checked(given, *words)
        assert found.returncode == 0 and "scripts/check_gpu FOLDER [PART...]" in found.stdout


@for_each(
    "words, said",
    [
        ([""], "'' is no name of a folder"),
        (["-x"], "'-x' is no name of a folder"),
        (["machine"], "machine is a part"),
        (["file"], "file is a file"),
        (["new", "machine", "other"], "there is no part 'other'"),
        (["new", ""], "there is no part ''"),
        (["prepare", "hopper"], "a compute capability"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(given, tmp_path, words, said):
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    found = subprocess.run([SCRIPT, *words], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 2 and said in found.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_it_goes_on_after_a_part_that_failed_but_not_without_packages_or_a_python(given, tmp_path):
    found = checked(given, str(tmp_path / "found"), "machine", "large", MACHINE="1")
    assert found.returncode == 1 and "machine: failed" in found.stdout and "large: good" in found.stdout
    found = checked(given, str(tmp_path / "found"), "machine", "large", MACHINE="3")
    assert found.returncode == 2 and "nothing runs without the packages" in found.stderr
    assert "large" not in found.stdout
    found = checked(given, str(tmp_path / "found"), PYTHON=str(tmp_path / "nowhere"))
    assert found.returncode == 2 and "nowhere does not run" in found.stderr


@pytest.fixture
def hanging(given, tmp_path) -> Iterator[tuple[subprocess.Popen[bytes], int, psutil.Process]]:
    """The script with a part that hangs, its terminal, and a process that has left the part's group."""
    terminal, inner = pty.openpty()
    words = [sys.executable, "-c", _ON_TERMINAL, SCRIPT, str(tmp_path / "found"), "machine", "large"]
    script = subprocess.Popen(words, env=given, stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
    os.close(inner)
    started = Path(given["STARTED"])
    try:
        wait_until(lambda: started.exists() and started.read_text().strip() != "", "the part has begun")
        yield script, terminal, psutil.Process(int(started.read_text()))
    finally:
        script.terminate()  # it ends what it has started
        script.wait(60)
        os.close(terminal)


# Ctrl-C reaches those in the foreground of a terminal, where SIGINT is not ignored.
_ON_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_all_that_was_started_and_keeps_the_logs(hanging, tmp_path, way):
    script, terminal, other = hanging
    if way == "Ctrl-C":
        os.write(terminal, b"\x03")
    else:
        script.send_signal(signal.SIGTERM)
    other.wait(timeout=120)
    assert script.wait(timeout=120) == 130
    found = tmp_path / "found"
    assert (found / "tree-logs.txt").exists() and "machine, 30 s at most" in (found / "machine.txt").read_text()
    assert not (found / "large.txt").exists()


def test_a_cache_that_was_brought_is_found_and_leaves_as_one_that_can_be_brought(given, tmp_path):
    script, kernel = tmp_path / "checkout" / "scripts" / "check_gpu", tmp_path / "checkout/build/triton_cache/KEY"
    for folder in (script.parent, kernel):
        folder.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    (kernel / "kernel.cubin").write_text("machine code\n")
    (kernel / "__grp__kernel.json").write_text('{"child_paths": {"kernel.cubin": "/another/place/KEY/kernel.cubin"}}')
    words, environment = [script, tmp_path / "found", "machine"], {**given, "MACHINE": "1"}
    told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120).stdout
    assert "machine code" in told
    shutil.rmtree(kernel.parent)
    [command] = re.findall("tar -C build .*", told)
    subprocess.run(command, shell=True, cwd=script.parents[1], check=True, timeout=120)
    assert (kernel / "kernel.cubin").read_text() == "machine code\n"


@pytest.mark.long
def test_kernels_are_compiled_where_a_card_will_look_for_them(tmp_path):
    builders = SCRIPT.parents[1] / "tests" / "builders"
    paths = os.pathsep.join(str(folder) for folder in (builders.parent, SCRIPT.parent))
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": str(tmp_path)}
    for _ in ("compiled", "found"):
        words = [sys.executable, builders / "compiled_beforehand.py", "90", "2"]
        told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
        assert "2 of 2 compiled" in told.stdout, told.stderr
        assert len(list(tmp_path.glob("*/*.cubin"))) == 2


@pytest.mark.long
def test_every_section_can_be_rehearsed_without_a_card(tmp_path):
    parts = ("machine", "little", "large", "profiles", "smoke")
    environment = {**os.environ, "REHEARSE": "1", "PYTHON": sys.executable}
    found = subprocess.run([SCRIPT, tmp_path / "found", *parts], env=environment, capture_output=True, text=True)
    text = found.stdout + found.stderr
    assert found.returncode == 0, text
    assert all(f"{part}: good" in text for part in parts), text
    figures = [json.loads(line) for line in (tmp_path / "found" / "found.jsonl").read_text().splitlines()]
    assert not [figure for figure in figures if "failure" in figure]
    names = {figure["name"] for figure in figures}
    assert {"copy bandwidth", "256 sequences together, warm", "3 rows decode, idle"} <= names
    assert (tmp_path / "found" / "tree-logs.txt").stat().st_size
