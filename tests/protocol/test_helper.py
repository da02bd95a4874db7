"""A helper process: one job after another, each within limits, and a new process after one that broke them."""

import os
import select
import signal
import subprocess
import sys
import threading

import pytest
from builders.watching import is_running

from penstock.protocol.helper import Bounds, Helper, HelperDiedError

BOUNDS = Bounds(cpu_seconds=1, memory_bytes=256 << 20)
PID = b"str(__import__('os').getpid()).encode()"


@pytest.fixture(scope="module")
def helper():
    found = Helper("helper", "builders.helper_work", BOUNDS)
    yield found
    found.close()


def test_jobs_are_answered_one_after_another_by_one_process(helper):
    assert helper.ask(b"b'x' * 10_000_000") == b"x" * 10_000_000
    assert helper.ask(b"b''") == b""
    assert helper.ask(PID) == helper.ask(PID)


@pytest.mark.parametrize(
    "job, why",
    [
        (b"sum(iter(int, 1))", "takes more than 1 s of processor time"),
        (b"[b'x' * 2**20 for _ in range(1000)]", "takes more than 256 MiB, or breaks"),
        (b"__import__('os')._exit(0)", "breaks what computes it"),
        (b"1 / 0", "breaks what computes it"),
    ],
)
def test_a_job_that_ends_its_process_is_told_why_and_the_next_one_has_another(helper, job, why):
    with pytest.raises(HelperDiedError, match=why):
        helper.ask(job)
    assert helper.ask(b"b'next'") == b"next"


@pytest.mark.long
def test_each_job_has_its_own_processor_time(helper):
    burn = b"str(sum(range(5_000_000))).encode()"
    for _ in range(30):
        helper.ask(burn)


def test_a_process_that_sleeps_is_ended_by_the_clock():
    helper = Helper("helper", "builders.helper_work", Bounds(wall_seconds=0.5))
    helper.start()
    with pytest.raises(HelperDiedError, match="takes more than 0.5 s"):
        helper.ask(b"__import__('time').sleep(60)")
    helper.close()


def test_a_process_that_has_grown_leaves_the_next_job_to_another(helper):
    first = helper.ask(PID)
    assert helper.ask(b"kept.append(bytes(2**27 + 2**20)) or b'kept'") == b"kept"
    assert helper.ask(PID) != first


def test_a_job_ends_with_close_and_none_begins_afterwards():
    helper = Helper("helper", "builders.helper_work", Bounds())
    pid = int(helper.ask(PID))
    threading.Timer(0.1, helper.close).start()
    for job in (b"__import__('time').sleep(60)", b"b''"):
        with pytest.raises(HelperDiedError, match="was ended with what it worked for"):
            helper.ask(job)
    assert not is_running(pid)


def test_a_process_ends_with_whoever_started_it_even_in_the_midst_of_a_job():
    code = (
        "from penstock.protocol.helper import Bounds, Helper\n"
        "helper = Helper('helper', 'builders.helper_work', Bounds())\n"
        f"print(helper.ask({PID!r}).decode(), flush=True)\n"
        "helper.ask(b\"__import__('time').sleep(60)\")"
    )
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        pid = int(parent.stdout.readline())
        pidfd = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)


    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(5000), "it lives on"
    os.close(pidfd)
