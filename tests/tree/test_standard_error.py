"""Standard error that is closed, broken or full costs what would have been said there, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.starts import ANSWERS, STAND_IN, WORDS, command, processes_of, run
from builders.watching import assert_gone, wait_until

from penstock import LLM, SamplingParams
from penstock.protocol.processes.runtime_directory import runtime_base

PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)


@contextmanager
def full_device() -> Iterator[int]:
    with open("/dev/full", "wb") as device:
        yield device.fileno()


@contextmanager
def full_pipe() -> Iterator[int]:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while os.write(write_end, b"x"):
            pass
    os.set_blocking(write_end, True)
    yield write_end
    os.close(read_end)
    os.close(write_end)


@pytest.mark.long
@for_each("make", [full_device, full_pipe])
def test_a_script_gets_its_answers_and_a_pipe_that_nobody_reads_holds_nothing_up_for_long(make):
    with make() as stream:
        done = run(stderr=stream)
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0)


def test_closed_descriptors_are_taken_by_nothing_of_ours(tmp_path):
    """Else the next file or socket to be opened would be standard error, to which libraries write."""
    code = ANSWERS + f"import os; open({str(tmp_path / 'answer')!r}, 'w').write(os.readlink('/proc/self/fd/2'))"
    (tmp_path / "script.py").write_text(code)
    words = ["sh", "-c", 'exec "$0" "$1" <&- >&- 2>&-', sys.executable, str(tmp_path / "script.py")]
    assert subprocess.run(words, timeout=120).returncode == 0
    assert (tmp_path / "answer").read_text() == os.devnull


@for_each("words, status", [(["generate"], 2), (["generate", "pocket", "x", *WORDS, "--max-tokens", "2"], 0)])
def test_a_commands_exit_status_is_its_own(words, status):
    with full_device() as stream:
        done = command(*words, stderr=stream)
    assert done.returncode == status
    assert bool(done.stdout) == (status == 0)


def test_answers_that_a_full_disk_did_not_take_are_an_error_in_one_line():
    with full_device() as stream:
        done = command("generate", "pocket", "x", "--quiet", "--max-tokens", "2", *WORDS, stdout=stream, stderr=-1)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("penstock: ") and "No space left on device" in line


@pytest.mark.long
@for_each("closed", ["<&-", "<&- >&- 2>&-"])
@for_each("word", ["chat", "doctor", "status", "--help"])
def test_commands_with_closed_streams_end_without_a_traceback(word, closed, tmp_path):
    words = ["sh", "-c", f'exec "$0" -m penstock {word} {closed}', sys.executable]
    with open(tmp_path / "said", "w") as said:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=120)
    assert done.returncode in (0, 1, 2, 3)
    assert "Traceback" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize("how", ["full", *(pytest.param(how, marks=pytest.mark.long) for how in ("none", "closed"))])
def test_an_object_outlives_its_scripts_standard_error(how, monkeypatch, model_folder, stand_in):
    """Python's own stream, changed between the start and the batch, and before the start of another one."""
    before = set(processes_of(runtime_base()))
    stream = None if how == "none" else open("/dev/full" if how == "full" else os.devnull, "w")
    if how == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with LLM(model_folder, **STAND_IN, quiet=False) as other:
        for llm in (stand_in, other):
            [output] = llm.generate([[1, 2]], PARAMS, use_tqdm=True)
            assert len(output.outputs.token_ids) == 3
    assert set(processes_of(runtime_base())) <= before


def test_what_is_said_arrives_whole_and_in_its_order(tmp_path):
    sizes = (1, 4096, 100_000)
    code = (
        "import sys; from penstock.frontend.console.standard_error import write_line\n"
        f"for size in {sizes}: sys.stderr.write('before '); write_line('x' * size); print('after', file=sys.stderr)"
    )
    with open(tmp_path / "said", "wb") as stream:
        assert run(code, stderr=stream).returncode == 0
    assert (tmp_path / "said").read_text() == "".join(f"before {'x' * size}\nafter\n" for size in sizes)


# --- logs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path):
    """A file system of its own that is full to the last byte."""
    folder = tmp_path / "full"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    with suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@pytest.mark.parametrize("is_full_before", [True, False], ids=["before the start", "while it runs"])
def test_a_full_log_disk_costs_log_lines(is_full_before, full_disk, monkeypatch, model_folder, capsys):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(full_disk))
    if is_full_before:
        fill(full_disk)
    with LLM(model_folder, **STAND_IN) as llm:
        fill(full_disk)
        pids = [child.popen.pid for child in llm._session.transport.tree.children]
        assert len(llm.generate([[1, 2]], PARAMS, use_tqdm=False)[0].outputs.token_ids) == 3
    assert_gone(pids)
    assert ("No log is written" in capsys.readouterr().err) == is_full_before


def test_a_child_that_fails_says_why_on_a_full_disk_which_for_sockets_names_its_variable(
    full_disk, monkeypatch, model_folder
):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(full_disk))
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=error")
    fill(full_disk)
    before = set(processes_of(runtime_base()))
    with pytest.raises(Exception, match="Injected fault at worker.start"):
        LLM(model_folder, **STAND_IN, quiet=True)
    wait_until(lambda: set(processes_of(runtime_base())) <= before, "no process of it is left")
    full_disk.chmod(0o700)
    monkeypatch.setenv("PENSTOCK_RUNTIME_DIR", str(full_disk))
    fill(full_disk)
    with pytest.raises(ValueError, match="No space left|no space left.*PENSTOCK_RUNTIME_DIR|Set it to another folder"):
        LLM(model_folder, **STAND_IN, quiet=True)
