"""`penstock batch`: a job makes the same files whatever interrupts it, and says what it refuses."""

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.batch_input import line as batch_line
from builders.cases import for_each
from builders.shell import SLOW, STAND_IN

from penstock.frontend.jobs import answer_keeper, job_files
from penstock.frontend.jobs.job import Job, JobOptions
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.job_input import JobInput
from penstock.frontend.jobs.journal import journal as journals
from penstock.frontend.jobs.journal.journal import Journal, read_journal
from penstock.frontend.jobs.journal.kept_answers import KeptAnswers
from penstock.frontend.jobs.journal.records import Answered, Died, Forgotten, Head, packed
from penstock.frontend.jobs.locked_file import open_locked, remove_locked
from penstock.protocol.errors import ConfigError, PenstockError

LINES = [
    *('"one"', "", json.dumps({"messages": [{"role": "user", "content": "one"}], "id": "mine", "max_tokens": 9})),
    batch_line("chat", logprobs=True, top_logprobs=2, n=2),
    batch_line("text", "/v1/completions", logprobs=1, seed=3, max_tokens=4),
    batch_line("response", "/v1/responses", max_output_tokens=4),
    *(batch_line("wrong", colour=1), "nonsense"),
    *(json.dumps({"prompt": f"prompt {number}", "max_tokens": 1 + number % 7}) for number in range(30)),
]
NUM_ROWS, NUM_FAILED = len(LINES) - 1, 2
ZERO, ONE = (Answered(row, 1, 200, 1, 0, 1, b'"%d"\n' % row) for row in (0, 1))


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(LINES))
    return path


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out.jsonl"


def made(out: Path) -> tuple[bytes, bytes]:
    files = JobFiles.of(out)
    return files.output.read_bytes(), files.errors.read_bytes()


def begun(files: JobFiles, *answers: Answered) -> Journal:
    """The journal of two rows, of which these are answered."""
    journal = Journal.open(files.journal)
    for record in (Head({}, 2), *answers):
        journal.append(packed(record))
    return journal


def test_answers_are_in_order_and_failures_in_a_file_of_their_own(batch, source, out, tmp_path):
    done = batch(source, out)
    assert done.returncode == 3 and f"{NUM_FAILED} of {NUM_ROWS} lines failed" in done.stderr, done.stderr
    answers, errors = ([json.loads(line) for line in content.splitlines()] for content in made(out))
    names = [0, 1, "chat", "text", "response", *range(7, NUM_ROWS)]
    assert [each.get("custom_id", each.get("index")) for each in answers] == names
    assert answers[2]["response"]["body"]["created"] == 0
    assert answers[4]["response"]["body"]["usage"]["output_tokens"] == 4
    assert [each["custom_id"] for each in errors] == ["wrong", "6"]
    assert all(each["response"]["status_code"] == 400 and each["error"] is None for each in errors)
    other = tmp_path / "elsewhere.jsonl"
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    batch(source, other, "--max-num-seqs", 3)
    assert made(other) == made(out)
    batch(packed, tmp_path / "unpacked.jsonl")
    assert len(made(tmp_path / "unpacked.jsonl")[0].splitlines()) == len(answers)


@for_each("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_told_to_end_continues_with_what_is_left(shell, shell_model, batch, tmp_path, number):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(LINES))
    files = JobFiles.of(out)
    words = ("batch", source, out, "--model", shell_model, *STAND_IN, "--commit-seconds", 0.01, "--max-num-seqs", 2)

    def has_some() -> bool:
        return files.journal.exists() and files.state().num_done > 5

    done = shell.interrupted(number, has_some, *words, **SLOW)
    assert done.returncode == 128 + number and not out.exists()
    num_done = files.state().num_done
    status = json.loads(shell.run("batch", "status", out, "--json").stdout)
    assert 5 < status["done"] == num_done < status["total"] == NUM_ROWS and status["running"] == 0
    assert "not running; the same command continues it" in shell.run("batch", "status", out).stdout
    exported = shell.run("batch", "export", out)
    assert exported.returncode == 0 and len(b"".join(made(out)).splitlines()) == num_done
    again = shell.run(*words)
    assert f"resumed: {num_done} of {NUM_ROWS} done" in again.stderr and again.returncode == 3
    whole = out.with_name("whole.jsonl")
    batch(source, whole)
    assert made(out) == made(whole)
    assert {path.name for path in out.parent.iterdir()} == {
        source.name, *(path.name for path in (*files, *JobFiles.of(whole)))
    }  # fmt: skip


def test_another_input_or_setting_is_refused_with_the_difference_unless_it_is_accepted(batch, source, out):
    batch(source, out)
    before = made(out)
    for words, environment, sentence in (
        (("--temperature", 0.5), {}, "sampling options changed from {"),
        (("--quantization", "int8"), {}, 'option quantization changed from none to "int8"'),
        (("--kv-cache-dtype", "int8"), {}, "option kv_cache_dtype changed from auto to int8"),
        (("--dtype", "float16"), {}, "option dtype changed from auto to float16"),
        ((), {"PENSTOCK_CPU_VARIANT": "none"}, "PENSTOCK_CPU_VARIANT changed from unset to none"),
    ):
        refused = batch(source, out, *words, **environment)
        assert refused.returncode == 1 and made(out) == before
        assert sentence in refused.stderr and "--accept-change" in refused.stderr, refused.stderr
    assert batch(source, out, "--dtype", "float16", "--accept-change").returncode == 3
    assert "option dtype changed from float16 to auto" in batch(source, out).stderr
    assert batch(source, out, "--accept-change").returncode == batch(source, out).returncode == 3
    source.write_text("\n".join(LINES).replace("prompt 7", "prompt 700"))
    assert "other settings: input changed from " in batch(source, out).stderr and made(out) == before
    assert batch(source, out, "--accept-change").returncode == 3
    pairs = zip(before[0].splitlines(), made(out)[0].splitlines(), strict=True)
    assert sum(earlier != now for earlier, now in pairs) == 1
    source.write_text('"one"')
    assert batch(source, out, "--accept-change").returncode == 0 and not JobFiles.of(out).errors.exists()


@for_each("price", ["-1", "nan", "inf"])
def test_a_price_that_is_none_is_refused(batch, source, out, price):
    done = batch(source, out, f"--price={price}")
    assert done.returncode == 2 and "--price" in done.stderr and not out.exists()


def test_failed_lines_are_asked_again_where_that_is_said_and_no_others(batch, source, out):
    batch(source, out)
    before = made(out)
    assert batch(source, out, "--retry-errors").returncode == 3 and made(out) == before
    assert JobFiles.of(out).state().num_done == NUM_ROWS


def test_lines_that_were_aborted_are_asked_by_the_same_command(batch, source, out, tmp_path, monkeypatch):
    with monkeypatch.context() as aborting:
        aborting.setattr(answer_keeper, "_NOT_ANSWERED", (400,))
        done = batch(source, out)
        assert done.returncode == 1 and f"{NUM_FAILED} lines were aborted. The same command" in done.stderr
        with_deaths = Journal.open(JobFiles.of(out).journal)
        for record in (Forgotten([0]), Died([0], "a cause"), Died([0], "a cause")):
            with_deaths.append(packed(record))
        with_deaths.close()
        assert "lines were aborted" in batch(source, out).stderr and not out.exists()
    assert batch(source, out).returncode == 3
    batch(source, tmp_path / "whole.jsonl")
    assert made(out) == made(tmp_path / "whole.jsonl")


@for_each("lines, sentence", [
    ([], "is empty, so there is no prompt"),
    ([batch_line("a"), '"b"', batch_line("a")], "'a' in line 1 and in line 3"),
])  # fmt: skip
def test_an_input_that_cannot_be_answered_is_refused_and_leaves_nothing(tmp_path, lines, sentence):
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=sentence):
        Job(source, tmp_path / "out", JobOptions())
    assert list(tmp_path.iterdir()) == [source]


def test_what_is_no_file_or_would_be_overwritten_is_refused(tmp_path, source):
    os.mkfifo(tmp_path / "pipe")
    odd = ((tmp_path / name, "out") for name in ("pipe", "nothing"))
    for given, output in (*odd, (source, source), (source, "/dev/null"), (source, "-")):
        with pytest.raises(ConfigError):
            Job(given, output if output == "-" else tmp_path / output, JobOptions())
    (tmp_path / "in.gz").write_bytes(b"text")
    with pytest.raises(PenstockError, match="cannot be read any further: Not a gzipped file"):
        Job(tmp_path / "in.gz", tmp_path / "out", JobOptions())
    (tmp_path / "in.zst").write_bytes(b"")
    with pytest.raises(ConfigError, match="zstd -d"):
        Job(tmp_path / "in.zst", tmp_path / "out", JobOptions())


def test_an_export_that_meets_the_end_of_its_job_leaves_the_jobs_output_and_the_users_files(out, monkeypatch):
    files = JobFiles.of(out)
    out.write_text("of yesterday")
    out.chmod(0o600)
    mine = out.with_name("out.jsonl.partial")
    mine.write_text("mine")
    journal = begun(files, ONE)
    is_exporting, goes_on, modes = threading.Event(), threading.Event(), []

    class Exported(KeptAnswers):
        def __iter__(self):
            if not is_exporting.is_set():
                unfinished = out.with_name("out.jsonl.partial-2") / mine.name  # the user has the folder's usual name
                modes.append(unfinished.stat().st_mode & 0o777)
                is_exporting.set()
                assert goes_on.wait(60)
            return super().__iter__()

    def locked(path, **patience):
        goes_on.set()
        return open_locked(path, **patience)

    monkeypatch.setattr(job_files, "KeptAnswers", Exported)
    (export := threading.Thread(target=files.write)).start()
    assert is_exporting.wait(60)
    journal.append(packed(ZERO))
    journal.close()
    open_locked = job_files.open_locked
    monkeypatch.setattr(job_files, "open_locked", locked)
    assert files.write().num_answers == 2
    export.join(60)
    assert out.read_text() == '"0"\n"1"\n' and mine.read_text() == "mine" and modes == [0o600]
    assert set(out.parent.iterdir()) == {out, mine, files.journal}


def test_a_lock_is_removed_unless_its_name_has_become_another_files(out):
    for is_replaced in (False, True):
        lock = open_locked(out)
        if is_replaced:
            out.unlink()
            out.write_text("mine")
        remove_locked(lock, out)
        os.close(lock)
        assert out.exists() == is_replaced


KILLED_WHILE_IT_WRITES = """
import os, signal, sys
from penstock.frontend.jobs import job_files
job_files.take_name = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
job_files.JobFiles.of(sys.argv[1]).write()
"""


def test_what_a_kill_leaves_of_an_unfinished_output_is_removed_by_the_next_to_write_and_nothing_else(out):
    files = JobFiles.of(out)
    begun(files, ZERO).close()
    mine = out.with_name("out.jsonl.partial-3") / "mine"
    mine.parent.mkdir()
    mine.write_text("mine")
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_WRITES, out], timeout=120)
    left = [path.name for path in out.parent.glob("out.jsonl.partial/*") if path.name.startswith("out")]
    assert killed.returncode == -signal.SIGKILL and not out.exists()
    assert "out.jsonl.partial" in left and "out.jsonl.partial.2" not in left
    assert files.write().num_answers == 1
    assert set(out.parent.iterdir()) == {out, mine.parent, files.journal} and mine.read_text() == "mine"


def test_where_files_belong_to_nobody_here_an_output_is_written_all_the_same(out, monkeypatch):
    files = JobFiles.of(out)
    begun(files, ZERO).close()
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 2)  # as file systems of other machines have it
    assert files.write().num_answers == 1 and set(out.parent.iterdir()) == {out, files.journal}


@for_each("module", [journals, job_files], ids=["journal", "output"])
def test_after_a_full_disk_the_same_command_makes_the_same_bytes(batch, source, tmp_path, module, monkeypatch):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    batch(source, whole)
    with monkeypatch.context() as full:
        full.setattr(module, "os", DiskOfNoMore(2000 if module is journals else 0))
        done = batch(source, out, "--commit-seconds", 0.001)
    assert done.returncode == 1 and "same command" in done.stderr and not out.exists(), done.stderr
    assert not list(out.parent.glob("*.partial"))
    batch(source, out)
    assert made(out) == made(whole)


def test_a_finished_job_whose_journal_is_damaged_anywhere_before_its_last_record_keeps_its_output(batch, source, out):
    batch(source, out)
    files, before = JobFiles.of(out), made(out)
    whole = files.journal.read_bytes()
    last = max(found.offset for found in read_journal(files.journal))
    for place in range(20, last, last // 50):
        files.journal.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        for read in (files.export, files.state, lambda: Job(source, out, JobOptions())):
            with pytest.raises(PenstockError, match="damaged at byte"):
                read()
    files.journal.write_bytes(b"")
    with pytest.raises(ConfigError, match="no record yet"):
        files.export()
    assert made(out) == before


class DiskOfNoMore(SimpleNamespace):
    """The module `os` on a disk that takes so many bytes; a file is complete once it has been synced."""

    def __init__(self, size: int) -> None:
        own = {name: each for name, each in vars(os).items() if name not in ("write", "fsync")}
        super().__init__(**own, left=size)

    def write(self, file: int, content: bytes) -> int:
        taken = min(self.left, len(content))
        self.left -= taken
        if content and not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, content[:taken])

    def fsync(self, file: int) -> None:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)


@for_each(
    "row, content", [(80_000, b'"B'), (100_000, b'"more"\n'), (99_000, None)], ids=["in place", "appended", "cut off"]
)
def test_nothing_that_changes_in_an_input_while_its_job_reads_it_is_answered(tmp_path, row, content):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'"line {number:08}"\n' for number in range(100_000)))  # of 16 bytes each
    opened = JobInput(path)
    assert opened.survey().num_rows == 100_000
    lines, read = opened.lines(), []
    next(lines)
    if content is None:
        os.truncate(path, 16 * row)
    else:
        with open(path, "r+b") as file:
            file.seek(16 * row)
            file.write(content)
    with pytest.raises(ConfigError, match="has been changed since this job began"):
        read.extend(lines)
    assert len(read) > 60_000 and all(line.line == f'"line {line.row:08}"\n' for line in read)


def test_an_input_that_vanishes_and_a_folder_that_takes_nothing_are_refused(batch, source, out):
    batch(source, out)
    source.unlink()
    before = made(out)
    done = batch(source, out)
    assert done.returncode == 1 and "cannot be read: No such file" in done.stderr and made(out) == before
    source.write_text('"one"')
    done = batch(source, "/proc/answers.jsonl")  # where even root, who may write there, can make no file
    assert done.returncode == 1 and re.search("/proc.* cannot be (opened|written)", done.stderr)
