"""A helper process does one job after another, each within limits; a new process follows one that broke them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.watching import assert_gone, is_running

from penstock.protocol.processes.bounded_process import BoundedPool, BoundedProcess, Bounds, JobDiedError

BOUNDS = Bounds(cpu_seconds=1, wall_seconds=600, memory_bytes=256 << 20)
PID = b"str(__import__('os').getpid()).encode()"


@pytest.fixture(scope="module")
def helper():
    found = BoundedProcess("helper", "builders.bounded_work", BOUNDS)
    yield found
    found.close()


def test_jobs_are_answered_one_after_another_by_one_process_unless_it_has_grown(helper):
    assert helper.ask(b"b'x' * 10_000_000") == b"x" * 10_000_000
    assert helper.ask(b"b''") == b""
    first = helper.ask(PID)
    assert helper.ask(PID) == first
    assert helper.ask(b"kept.append(bytes(2**27 + 2**20)) or b'kept'") == b"kept"
    assert helper.ask(PID) != first


@for_each("job, why", [
    (b"sum(iter(int, 1))", "takes more than 1 s of processor time"),
    (b"[b'x' * 2**20 for _ in range(1000)]", "takes more than 256 MiB, or breaks"),
    (b"__import__('os')._exit(0)", "breaks what computes it"),
    (b"1 / 0", "breaks what computes it"),
])  # fmt: skip
def test_a_job_that_ends_its_process_is_told_why_and_the_next_one_has_another(helper, job, why):
    with pytest.raises(JobDiedError, match=why):
        helper.ask(job)
    assert helper.ask(b"b'next'") == b"next"


@pytest.mark.long
def test_each_job_has_its_own_processor_time(helper):
    for _ in range(30):
        helper.ask(b"str(sum(range(5_000_000))).encode()")
        assert 0 < helper.processor_seconds < 1


def test_a_job_whose_process_is_killed_from_outside_goes_to_another_and_once_only(helper):
    """It may have been what the kernel ran out of memory with; a job knows of which generation its process is."""
    before = helper.generation
    job = b"__import__('os').kill(__import__('os').getpid(), 9)"
    assert helper.ask_as(lambda generation: PID if generation > before else job) != b""
    with pytest.raises(JobDiedError, match="breaks what computes it"):
        helper.ask(job)
    assert helper.ask(b"b'next'") == b"next"
    assert helper.generation == before + 3
    pid = int(helper.ask(PID))
    os.kill(pid, signal.SIGKILL)  # between two jobs
    assert_gone([pid])
    assert int(helper.ask(PID)) != pid and helper.generation == before + 4


def test_a_process_that_sleeps_or_is_stopped_is_ended_by_the_clock_however_long_the_job(monkeypatch):
    monkeypatch.setattr("penstock.protocol.processes.bounded_process.inherited_limits", lambda: "ulimit -v 9")
    helper = BoundedProcess("helper", "builders.bounded_work", Bounds(wall_seconds=0.5))
    for job, number in {
        b"__import__('time').sleep(60)": signal.SIGCONT,
        b"b''": signal.SIGSTOP,
        b"b'" + b"x" * 1_000_000 + b"'": signal.SIGSTOP,
    }.items():
        helper.start()
        helper._process.send(number)
        with pytest.raises(JobDiedError, match=r"takes more than 0.5 s \(or than this .* leave it: ulimit -v 9\)"):
            helper.ask(job)
    helper.close()


def test_a_job_ends_with_close_and_none_begins_afterwards():
    helper = BoundedProcess("helper", "builders.bounded_work", Bounds())
    pid = int(helper.ask(PID))
    threading.Timer(0.1, helper.close).start()
    for job in (b"__import__('time').sleep(60)", b"b''"):
        with pytest.raises(JobDiedError, match="was ended with what it worked for"):
            helper.ask(job)
    assert not is_running(pid)
    pool = BoundedPool("helper", "builders.bounded_work", Bounds())
    taken, idle = pool.take(), pool.take()
    pool.give_back(idle)
    pool.close()
    for helper in (taken, pool.take(), pool.take()):
        with pytest.raises(JobDiedError, match="was ended with what it worked for"):
            helper.ask(b"b''")


def under_limits(folder: Path, limits: dict[str, int], *jobs: str) -> Any:
    command = [sys.executable, "-m", "builders.under_limits", json.dumps(limits), str(folder), *jobs]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PENSTOCK_CACHE": str(folder)}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


LIMITS = {
    "RLIMIT_CPU": 90, "RLIMIT_AS": 6 << 30, "RLIMIT_DATA": 6 << 30, "RLIMIT_FSIZE": 64 << 20, "RLIMIT_NOFILE": 64,
    "RLIMIT_CORE": 0, "RLIMIT_STACK": 8 << 20,
}  # fmt: skip


def test_everyone_who_uses_such_a_process_works_under_hard_limits_of_any_kind(tmp_path):
    found = under_limits(tmp_path, LIMITS)
    refusal = found.pop("follower")
    assert found == {"picture": [1, 384, 288], "template": ["hi"], "gguf": True, "grammar": None}
    assert refusal == "It cannot be followed (KeyError: 0)."
    hard = "str([r.getrlimit(getattr(r, name))[1] for r in [__import__('resource')] for name in {}]).encode()"
    assert under_limits(tmp_path, LIMITS, hard.format(list(LIMITS))) == [str(list(LIMITS.values()))]


@for_each("limits, job, says", [
    ({"RLIMIT_CPU": 2}, "sum(iter(int, 1))", "processor time (or than .* leave it: ulimit -t 2)"),
    ({"RLIMIT_AS": 400 << 20}, "b'x' * 2**28", r"512 MiB (or than .*: ulimit -v 409600), or breaks"),
    ({"RLIMIT_DATA": 200 << 20}, "b'x' * 2**28", r"512 MiB (or than .*: ulimit -d 204800), or breaks"),
    # Too little for the dynamic linker: with a little more, the interpreter's own start may spin until the wall bound.
    ({"RLIMIT_AS": 4 << 20}, "b'begun'", "ulimit -v 4096"),
])  # fmt: skip
def test_a_job_that_needs_more_than_the_callers_own_limits_is_told_of_them(tmp_path, limits, job, says):
    [found] = under_limits(tmp_path, limits, job)
    assert re.search(says.replace("(", r"\(").replace(")", r"\)"), found), found


def test_jobs_whose_process_would_run_out_of_a_limit_of_time_go_to_another(tmp_path):
    job = (
        "(lambda clock, end: next(b'done' for _ in iter(int, 1) if clock() > end))"
        "(*(lambda clock: (clock, clock() + 0.6))(__import__('time').process_time))"
    )
    assert under_limits(tmp_path, {"RLIMIT_CPU": 2}, *[job] * 2) == ["done"] * 2
