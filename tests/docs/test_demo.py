"""The demo, as a person sees it: through a terminal, to its end, stopped in the middle, and on a wrong model."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import demo
import pexpect
import psutil
import pytest
from builders.cases import for_each
from builders.tiny_model import tiny_model
from builders.watching import assert_gone

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scripts" / "demo.py"
LONGEST_SECONDS = 180
SCREENFUL = 45  # lines, those of the progress bar not counted


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny", "qwen3", max_position_embeddings=4096)


def on_a_terminal(folder: Path, *words: str, **variables: str) -> pexpect.spawn:
    """The demo started in that folder, 80 columns wide."""
    # Named, because readline, where it was imported, hands COLUMNS on behind os.environ's back.
    environment = {**os.environ, **variables}
    return pexpect.spawn(
        sys.executable, [str(DEMO), *words], cwd=folder, env=environment, timeout=LONGEST_SECONDS,
        dimensions=(50, 80), encoding="utf-8", codec_errors="replace",
    )  # fmt: skip


def children_of(child: pexpect.spawn) -> list[int]:
    return [process.pid for process in psutil.Process(child.pid).children(recursive=True)]


@pytest.fixture
def running(model_folder, tmp_path) -> Iterator[tuple[pexpect.spawn, list[int]]]:
    """The demo in its first part, and the processes of its tree; slowed, so that it is not over before a test acts."""
    child = on_a_terminal(tmp_path, "--model", str(model_folder), PENSTOCK_FAULTS="worker.step=delay:0.02")
    try:
        child.expect_exact("1. A batch")
        yield child, children_of(child)
    finally:
        child.close(force=True)


class Finished(NamedTuple):
    text: str
    status: int | None
    processes: list[int]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Finished:
    """On pocket, as it comes."""
    child = on_a_terminal(tmp_path_factory.mktemp("elsewhere"))
    child.expect_exact("1. A batch")
    processes, before = children_of(child), child.before + child.after
    child.expect(pexpect.EOF)
    child.close()
    return Finished((before + child.before).replace("\r\n", "\n"), child.exitstatus, processes)


def test_the_demo_shows_everything_in_a_screenful_and_leaves_no_process(finished):
    assert finished.status == 0
    for landmark in ("penstock is ready", "1. A batch", "48/48", "2. A stream", "3. A prefix", "What next"):
        assert landmark in finished.text
    assert finished.text.count("\n") <= SCREENFUL
    assert len(finished.processes) == 3  # worker, engine, detokenizer
    assert_gone(finished.processes)


def test_the_second_way_on_takes_the_conversation_from_the_cache(finished):
    found = re.findall(r"([\d,]+) tokens in, ([\d,]+) of them from the prefix cache", finished.text)
    (prompt, before), (_, after) = ([int(figure.replace(",", "")) for figure in row] for row in found)
    assert before < 64 < prompt - 128 < after, found


def test_most_answers_of_pocket_are_right_and_the_thought_is_dimmed(finished):
    assert int(re.search(r"(\d+) of 48 are right", finished.text)[1]) >= 36
    stream = finished.text.partition("2. A stream")[2]
    assert re.search(r"\033\[2m[\s\S]*\n  [^\n]*623", stream), stream


def test_answers_fit_a_window_that_has_changed_and_a_ctrl_c_leaves_no_process(running):
    child, processes = running
    child.setwinsize(50, 60)
    child.expect_exact(demo.FOLLOWING[0])
    child.expect_exact("\r\n")
    assert demo.width_of(f"  {demo.FOLLOWING[0]}{child.before}") <= 60
    child.sendintr()
    child.expect_exact("Stopped")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert "Traceback" not in child.before
    assert_gone(processes)


def test_a_model_that_is_not_there_is_named_with_what_was_tried(tmp_path):
    words = [sys.executable, str(DEMO), "--model", str(tmp_path / "missing")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert done.returncode == 1
    assert "demo: No model" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder with scripts/demo, whose set-up and interpreter say that they were called."""
    folder = tmp_path / "a checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / "scripts" / "demo").write_bytes((ROOT / "scripts" / "demo").read_bytes())
    (folder / "scripts" / "setup").write_text("#!/bin/sh\necho set up\n")
    (folder / ".venv" / "bin" / "python").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    for name in ("scripts/demo", "scripts/setup", ".venv/bin/python"):
        (folder / name).chmod(0o755)
    return folder


@for_each("through_a_link", [False, True])
def test_the_command_sets_up_first_and_works_from_any_folder(checkout, tmp_path, through_a_link):
    command = checkout / "scripts" / "demo"
    if through_a_link:
        (tmp_path / "linked").symlink_to(command)
        command = tmp_path / "linked"
    done = subprocess.run(
        [command, "--model", "my model"], cwd="/", capture_output=True, text=True, timeout=LONGEST_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "set up"
    assert second == f"<{checkout}/scripts/demo.py><--model><my model>"
    (checkout / "scripts" / "setup").write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run([command], capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert (done.returncode, done.stdout) == (3, "")
    (checkout / "scripts" / "setup").write_text("#!/bin/sh\necho set up\n")


@for_each("text", ["short", "exactly ten", "82加42等于多少?", "……加加加加加加加"])
@for_each("columns", [10, 11, 12])
def test_a_line_is_clipped_to_its_columns(text, columns):
    clipped = demo.clipped(text, columns)
    assert demo.width_of(clipped) <= columns
    assert clipped == text or clipped.endswith("…")
    assert demo.printable("a\x1b[2Jb\tc\r") == "a [2Jb c ", "nor does it move the cursor"
