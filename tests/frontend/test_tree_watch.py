"""How a tree's processes are watched: what the kernel says of them, how long they may take, who answers."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from builders.cases import for_each
from builders.watching import wait_until

from penstock.frontend.session.tree import roll_call, vital_signs
from penstock.frontend.session.tree.roll_call import RollCall
from penstock.frontend.session.tree.tree_watch import TreeWatch
from penstock.frontend.session.tree.vital_signs import Process, Progress, descendants, is_stopped, thread_states
from penstock.frontend.session.tree.watchdog import Timer, Watchdog
from penstock.protocol.messages import Hello
from penstock.protocol.processes.heartbeat import HeartbeatLine, Vitals

SECOND = 10**9


def watch(
    weight_bytes: int, max_model_len: int = 1024, block_bytes: int = 32, timeout: float = 10.0, **given: Any
) -> TreeWatch:
    plan = SimpleNamespace(weight_bytes=weight_bytes, max_model_len=max_model_len, block_bytes=block_bytes)
    config = SimpleNamespace(block_size=32)
    asked = SimpleNamespace(ask=lambda role: None)
    usual = dict(plan=plan, config=config, children=[], remote_ranks=(), is_ready=True, roll_call=asked)
    return TreeWatch(SimpleNamespace(**usual | given), timeout)


def in_a_step_of(tokens: int, *, steps: int, tokens_before: int, seconds_before: float) -> HeartbeatLine:
    step_time = int(seconds_before * SECOND)
    return HeartbeatLine(0, 0, tokens_before + tokens, 0, tokens_before, 0, steps, step_time)


def test_a_step_has_time_in_proportion_to_its_tokens_and_at_least_that_of_those_before_it():
    measured = dict(steps=100, tokens_before=100, seconds_before=50.0)
    few, many = (watch(10**9).step_seconds(in_a_step_of(tokens, **measured)) for tokens in (8, 512))
    assert many == pytest.approx(64 * few)
    assert many > 10 * 512 * 0.5
    # 100 prompts of 512 tokens, 30 s each: a token was 0.06 s, but the next step reads all weights again.
    signs = in_a_step_of(1, steps=100, tokens_before=51_200, seconds_before=3000.0)
    assert watch(10**9).step_seconds(signs) >= 10 * 30.0


def test_a_long_history_is_expected_after_short_ones():
    signs = in_a_step_of(512, steps=100, tokens_before=51_200, seconds_before=100.0)
    short, long = (watch(10**9, length, 32 * 10_000).step_seconds(signs) for length in (1024, 131_072))
    assert long > 2 * short


def test_the_first_steps_have_the_time_of_a_slow_machine():
    first = in_a_step_of(512, steps=0, tokens_before=0, seconds_before=0)
    assert watch(30 * 10**9).step_seconds(first) > 3600, "30 billion weights on two cores"
    assert watch(10**6).step_seconds(first) == 50.0, "kernels may have to be compiled"


def test_a_rank_elsewhere_is_given_all_the_time_that_its_machine_tells_once_a_second_and_no_more():
    told = SimpleNamespace(line=in_a_step_of(1, steps=99, tokens_before=99, seconds_before=1.0), vitals=Vitals(7))
    page = SimpleNamespace(read=lambda role: told.line, vitals=lambda rank: told.vitals)
    machines = {"worker 0": Hello("worker 0", 7, {}, machine="node 1 (b)", log="/there.log")}
    looked = watch(10**6, timeout=4.0, heartbeats=page, remote_ranks=(0,), machines=machines, log="/here")

    def looks_until_hung(vitals: Callable[[int], Vitals]) -> tuple[int, str]:
        looked.begin()
        for number in range(1, 100):  # every 0.4 s
            told.vitals = vitals(number)
            if (error := looked.look(0.4)) is not None:
                return number, str(error)
        return 0, ""

    number, error = looks_until_hung(lambda number: Vitals(7, chance=int(number * 0.4) * SECOND))
    assert 11 <= number <= 14, "4 s, after a look without one before, and at most a second until it is told"
    assert "worker 0 process (pid 7 on node 1 (b)) has shown no" in error and "/there.log on node 1 (b)." in error
    assert looks_until_hung(lambda number: Vitals(7)) == (0, ""), "it had no core"
    number, error = looks_until_hung(lambda number: Vitals(7, is_stopped=1))
    assert number == 11 and "been stopped" in error


@pytest.fixture
def looks():
    """A watchdog of 0.2 s; what it is told, and whether it waits."""
    told = SimpleNamespace(seconds=[], looks_before=[], is_waited_for=False, is_asleep=False)

    def begin() -> None:
        told.looks_before.append(len(told.seconds))

    def is_waited_for() -> bool:
        told.is_asleep = not told.is_waited_for  # until it is woken
        return told.is_waited_for

    told.watchdog = Watchdog(0.2, is_waited_for, begin, told.seconds.append)
    yield told
    told.watchdog.stop()


def test_a_watchdog_looks_only_while_somebody_waits_and_never_without_a_bound(looks):
    before = threading.active_count()
    unbounded = Watchdog(0.0, lambda: True, lambda: None, lambda seconds: None)
    unbounded.wake()
    assert threading.active_count() == before
    unbounded.stop()
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: len(looks.seconds) > 2, "it looks")
    looks.is_waited_for = False
    wait_until(lambda: looks.is_asleep, "it sleeps")
    before = len(looks.seconds)
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: len(looks.looks_before) == 2, "it begins anew")
    assert looks.looks_before == [0, before], "it looked once more"


def test_time_in_which_the_watchdog_did_not_run_itself_does_not_count(looks, monkeypatch):
    clock = SimpleNamespace(ahead=0.0)
    monotonic = time.monotonic
    monkeypatch.setattr("penstock.frontend.session.tree.watchdog.time.monotonic", lambda: monotonic() + clock.ahead)
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: bool(looks.seconds), "it looks")
    clock.ahead = 3600.0
    before = len(looks.seconds)
    wait_until(lambda: len(looks.seconds) > before + 2, "it looks again")
    assert max(looks.seconds) <= 0.04 + 1e-9


def test_a_timer_counts_from_the_last_change_on():
    timer = Timer()
    for sign, seconds in ((1, 5.0), (1, 2.0), (1, 2.0)):
        timer.count(sign, seconds)
    assert timer.seconds == 4.0
    timer.count(2, 2.0)
    assert timer.seconds == 0.0


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


def test_who_computes_could_have_worked_as_long_as_it_had_a_core(start, tmp_path):
    has_begun = tmp_path / "begun"  # until then it also waits for the files that it reads
    pid, begun, counted = start(f"open({str(has_begun)!r}, 'w').close()\n{COMPUTES}"), time.monotonic(), 0.0
    wait_until(has_begun.exists, "it computes")
    process = Process(pid)
    while counted < 0.1:
        counted += process.chance(60.0).seconds
        assert time.monotonic() < begun + 120
    assert counted < 2 * (time.monotonic() - begun), "as long as it had a core, not the minutes that were said to pass"


def test_a_process_is_known_by_the_time_of_its_start():
    assert vital_signs.start_time(os.getpid()) == vital_signs.start_time(os.getpid()) != vital_signs.start_time(1)
    assert vital_signs.start_time(2**22 + 1) is None


@for_each("body", [COMPUTES, READS, PARENT], ids=["computes", "reads", "its child computes"])
def test_who_computes_or_reads_misses_nothing(start, body):
    pid, progress = start(body), Progress()
    if body == PARENT:
        wait_until(lambda: bool(descendants([pid])) and sleeps(pid), "its child runs")
    progress.count([pid], 0.01)
    progress.missed = 5.0

    def has_progress() -> bool:
        progress.count([pid], 0.01)
        return progress.missed == 0.0

    wait_until(has_progress, "progress", 120)


def missed(pid: int) -> float:
    progress = Progress()
    for seconds in (1.0, 1.0, 2.0):
        progress.count([pid], seconds)
    return progress.missed


def test_who_sleeps_could_have_worked_and_misses_all_that_passes_and_who_is_stopped_is_known_as_such(start):
    pid = start(SLEEPS)
    wait_until(lambda: sleeps(pid), "it sleeps")
    assert Process(pid).chance(3.0) == (3.0, False, False)
    assert missed(pid) == 3.0  # what came before the first look is not known
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), "it is stopped")
    assert Process(pid).chance(3.0).is_stopped


def test_who_waits_for_the_lock_of_another_is_not_at_fault(start, tmp_path):
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pid = start("import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX)", lock.name)
        wait_until(lambda: sleeps(pid), "it waits")
        assert missed(pid) == 0.0


def test_whoever_asks_waits_for_nobody_when_the_tree_has_ended(tmp_path):
    nobody = SimpleNamespace(read=lambda role: SimpleNamespace(answered=0))
    roll_call = RollCall(tmp_path, ["engine"], nobody)

    async def ask() -> list[str]:
        asking = asyncio.create_task(roll_call.silent(600, lambda role: False))
        await asyncio.sleep(0.05)
        assert not asking.done()
        roll_call.close()
        return await asyncio.wait_for(asking, 60)

    assert asyncio.run(ask()) == ["engine"]


def test_stopped_processes_are_not_waited_for_and_do_not_shorten_the_time_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(roll_call, "_STOPPED_SECONDS", 0.0)
    reads = Counter()

    def read(role: str) -> SimpleNamespace:
        reads[role] += 1
        return SimpleNamespace(answered=int(role == "worker 0" and reads[role] > 9))

    with closing(RollCall(tmp_path, ["engine", "worker 0"], SimpleNamespace(read=read))) as asked:
        answers = asked.silent(600, lambda role: role == "engine")
        assert asyncio.run(asyncio.wait_for(answers, 60)) == ["engine"]
