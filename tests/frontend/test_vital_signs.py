"""What the kernel says of processes: who could have worked, and who has."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from builders.watching import wait_until

from penstock.frontend.session.tree.vital_signs import (
    Process,
    Progress,
    descendants,
    is_stopped,
    start_time,
    thread_states,
)

SLEEPS = "import time; time.sleep(60)"
COMPUTES = "while True: pass"
READS = "while True:\n with open('/proc/self/maps') as f: f.read()\n __import__('time').sleep(0.01)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPUTES!r}])"


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    started: list[subprocess.Popen[bytes]] = []

    def script(body: str, *arguments: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", body, *arguments]))
        return started[-1].pid

    yield script
    for popen in started:
        for pid in (*descendants([popen.pid]), popen.pid):
            os.kill(pid, signal.SIGKILL)
        popen.wait()


def sleeps(pid: int) -> bool:
    return thread_states(pid) == "S"


def test_who_sleeps_could_have_worked_all_the_time(start):
    pid = start(SLEEPS)
    wait_until(lambda: sleeps(pid), 10, "it sleeps")
    assert Process(pid).chance(3.0) == (3.0, False, False)


def test_who_is_stopped_is_known_as_such(start):
    pid = start(COMPUTES)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), 10, "it is stopped")
    assert Process(pid).chance(3.0).is_stopped


def test_who_computes_could_have_worked_as_long_as_it_had_a_core(start):
    process, begun, counted = Process(start(COMPUTES)), time.monotonic(), 0.0
    while counted < 0.1:
        counted += process.chance(60.0).seconds
        assert time.monotonic() < begun + 20
    assert counted < 2 * (time.monotonic() - begun), "as long as it had a core, not the minutes that were said to pass"


def test_a_process_is_known_by_the_time_of_its_start():
    assert start_time(os.getpid()) == start_time(os.getpid()) != start_time(1)
    assert start_time(2**22 + 1) is None


@pytest.mark.parametrize("body", [COMPUTES, READS, PARENT], ids=["computes", "reads", "its child computes"])
def test_who_computes_or_reads_misses_nothing(start, body):
    pid, progress = start(body), Progress()
    if body == PARENT:
        wait_until(lambda: bool(descendants([pid])) and sleeps(pid), 10, "its child runs")
    progress.count([pid], 0.01)
    progress.missed = 5.0

    def has_progress() -> bool:
        progress.count([pid], 0.01)
        return progress.missed == 0.0

    wait_until(has_progress, 20, "progress")


def missed(pid: int) -> float:
    progress = Progress()
    for seconds in (1.0, 1.0, 2.0):
        progress.count([pid], seconds)
    return progress.missed


def test_who_sleeps_misses_all_that_passes(start):
    pid = start(SLEEPS)
    wait_until(lambda: sleeps(pid), 10, "it sleeps")
    assert missed(pid) == 3.0  # what came before the first look is not known


def test_who_waits_for_the_lock_of_another_is_not_at_fault(start, tmp_path):
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pid = start("import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX)", lock.name)
        wait_until(lambda: sleeps(pid), 10, "it waits")
        assert missed(pid) == 0.0
