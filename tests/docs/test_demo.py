"""The demo, as a person sees it: through a terminal, to its end, stopped in the middle, and on a wrong model."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import demo
import pexpect
import psutil
from builders.cases import for_each
from builders.tiny_model import tiny_model
from builders.watching import assert_gone

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scripts" / "demo.py"
LONGEST_SECONDS = 180
SCREENFUL = 45  # lines, those of the progress bar not counted


def on_a_terminal(folder: Path, *words: str, **variables: str) -> pexpect.spawn:
    """The demo started in that folder, 80 columns wide, and seen until its first part begins."""
    # Named, because readline, where it was imported, hands COLUMNS on behind os.environ's back.
    environment = {**os.environ, **variables}
    child = pexpect.spawn(
        sys.executable, [str(DEMO), *words], cwd=folder, env=environment, timeout=LONGEST_SECONDS,
        dimensions=(50, 80), encoding="utf-8", codec_errors="replace",
    )  # fmt: skip
    child.expect_exact("1. A batch")
    return child


def children_of(child: pexpect.spawn) -> list[int]:
    return [process.pid for process in psutil.Process(child.pid).children(recursive=True)]


def test_the_demo_shows_everything_in_a_screenful_with_right_answers_and_leaves_no_process(tmp_path):
    """On pocket, as it comes."""
    child = on_a_terminal(tmp_path)
    processes, before = children_of(child), child.before + child.after
    child.expect(pexpect.EOF)
    child.close()
    text = (before + child.before).replace("\r\n", "\n")
    assert child.exitstatus == 0
    for landmark in ("penstock is ready", "1. A batch", "48/48", "2. A stream", "3. A prefix", "What next"):
        assert landmark in text
    assert text.count("\n") <= SCREENFUL
    assert len(processes) == 3  # worker, engine, detokenizer
    assert_gone(processes)
    found = re.findall(r"([\d,]+) tokens in, ([\d,]+) of them from the prefix cache", text)
    (prompt, before), (_, after) = ([int(figure.replace(",", "")) for figure in row] for row in found)
    assert before < 64 < prompt - 128 < after, "the second way on takes the conversation from the cache"
    assert int(re.search(r"(\d+) of 48 are right", text)[1]) >= 36
    stream = text.partition("2. A stream")[2]
    assert re.search(r"\033\[2m[\s\S]*\n  [^\n]*623", stream), "the thought is dimmed"


def test_answers_fit_a_window_that_has_changed_and_a_ctrl_c_leaves_no_process(tmp_path):
    """Slowed, so that it is not over before."""
    model = tiny_model(tmp_path / "tiny", "qwen3", max_position_embeddings=4096)
    child = on_a_terminal(tmp_path, "--model", str(model), PENSTOCK_FAULTS="worker.step=delay:0.02")
    try:
        processes = children_of(child)
        child.setwinsize(50, 60)
        child.expect_exact(demo.FOLLOWING[0])
        child.expect_exact("\r\n")
        assert demo.width_of(f"  {demo.FOLLOWING[0]}{child.before}") <= 60
        child.sendintr()
        child.expect_exact("Stopped")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 130
    assert "Traceback" not in child.before
    assert_gone(processes)


def test_a_model_that_is_not_there_is_named_with_what_was_tried(tmp_path):
    words = [sys.executable, str(DEMO), "--model", str(tmp_path / "missing")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert done.returncode == 1
    assert "demo: No model" in done.stderr
    assert "Traceback" not in done.stderr


@for_each("through_a_link", [False, True])
def test_the_command_sets_up_first_and_works_from_any_folder(tmp_path, through_a_link):
    """In a checkout whose set-up and interpreter say that they were called."""
    folder = tmp_path / "a checkout"
    files = {
        "scripts/demo": (ROOT / "scripts" / "demo").read_text(),
        "scripts/setup": "#!/bin/sh\necho set up\n",
        ".venv/bin/python": '#!/bin/sh\nprintf "<%s>" "$@"\n',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    command = folder / "scripts" / "demo"
    if through_a_link:
        (tmp_path / "linked").symlink_to(command)
        command = tmp_path / "linked"
    done = subprocess.run([command, "--model", "my model"], cwd="/", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["set up", f"<{folder}/scripts/demo.py><--model><my model>"]
    (folder / "scripts" / "setup").write_text("#!/bin/sh\nexit 3\n")
    done = subprocess.run([command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (3, "")


def test_setting_up_has_nothing_to_do_until_what_was_built_from_changes_or_more_is_asked_for(tmp_path):
    """Sets up a checkout whose interpreter says that it has everything."""
    folder = tmp_path / "checkout"
    for pattern in ("pyproject.toml", "setup.py", "scripts/setup", "scripts/link_package", "kernels/cpu/*.py"):
        for path in ROOT.glob(pattern):
            (copy := folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    (folder / "kernels" / "cpu" / "source").mkdir()
    (kernel := folder / "kernels" / "cpu" / "source" / "kernel.cpp").touch()
    (python := folder / ".venv" / "bin" / "python").parent.mkdir(parents=True)
    answers = f"*version_info*) echo 3.11;; *purelib*) echo {tmp_path};; *SystemExit*) echo 2.13.0"
    python.write_text(f"#!/bin/sh\ncase $* in {answers};; esac\n")
    python.chmod(0o755)

    def says(*words: str) -> str:
        done = subprocess.run(["scripts/setup", *words], cwd=folder, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "installing Penstock\n" in says() and says() == ""
    assert "what its tests need\n" in says("--tests") and says("--tests") == says() == ""
    for changed in (kernel, *(folder / name for name in ("pyproject.toml", "scripts/setup", "kernels/cpu/build.py"))):
        changed.write_text(f"{changed.read_text()}\n# changed\n")
        assert "installing Penstock\n" in says(), changed
    folder = folder.rename(tmp_path / "elsewhere")
    assert "installing Penstock\n" in says() and says() == ""


@for_each("text", ["short", "exactly ten", "82加42等于多少?", "……加加加加加加加"])
@for_each("columns", [10, 11, 12])
def test_a_line_is_clipped_to_its_columns(text, columns):
    clipped = demo.clipped(text, columns)
    assert demo.width_of(clipped) <= columns
    assert clipped == text or clipped.endswith("…")
    assert demo.printable("a\x1b[2Jb\tc\r") == "a [2Jb c ", "nor does it move the cursor"
