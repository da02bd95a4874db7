"""A helper process: one job after another, each within limits, and a new process after one that broke them."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from builders.cases import for_each
from builders.watching import assert_gone, is_running

from penstock.protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError

BOUNDS = Bounds(cpu_seconds=1, memory_bytes=256 << 20)
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


def test_a_process_that_sleeps_or_is_stopped_is_ended_by_the_clock_however_long_the_job():
    helper = BoundedProcess("helper", "builders.bounded_work", Bounds(wall_seconds=0.5))
    for job, number in {
        b"__import__('time').sleep(60)": signal.SIGCONT,
        b"b''": signal.SIGSTOP,
        b"b'" + b"x" * 1_000_000 + b"'": signal.SIGSTOP,
    }.items():
        helper.start()
        helper._process.send(number)
        with pytest.raises(JobDiedError, match="takes more than 0.5 s"):
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


def test_a_process_ends_with_whoever_started_it_even_in_the_midst_of_a_job():
    code = (
        "from penstock.protocol.processes.bounded_process import Bounds, BoundedProcess\n"
        "helper = BoundedProcess('helper', 'builders.bounded_work', Bounds())\n"
        f"print(helper.ask({PID!r}).decode(), flush=True)\n"
        "helper.ask(b\"__import__('time').sleep(60)\")"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert_gone([pid])
