"""Everything at once, for a while: nobody's answer is lost, and at the end nothing has grown and nothing is left.

A worker is killed every minute for twenty minutes (`-m soak`).
"""

import faulthandler
import os
import signal
import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.daemon import RunningDaemon, running_daemon, worker_of
from builders.traffic import KINDS, Traffic
from builders.watching import module_of, wait_until

from penstock import SamplingParams

SERVED = (
    "pocket", "--max-model-len", "512", "--num-gpu-blocks-override", "128", "--keep-alive", "inf",
    "--http", "127.0.0.1:0",
)  # fmt: skip
PERIODS, SECONDS, COLD = 20, 60.0, 3  # so many periods until it is warm
# A process may come to hold so much more memory, once it is warm; an allocator takes it in pieces of a MiB.
GROWTH, PIECES = 1.03, 2.0
LATE = 4  # connections that a process makes only when it first needs them
BOUND = 120.0  # for what comes as soon as it may


@pytest.mark.soak
def test_mixed_traffic_leaves_everything_as_it_was():
    # In place of the watch over all tests, which this one outlasts; pytest ends it.
    faulthandler.dump_traceback_later(PERIODS * (SECONDS + 2 * BOUND) + 2 * BOUND, exit=True)
    with TemporaryDirectory(prefix="pd") as folder, running_daemon(Path(folder), *SERVED) as daemon:
        with daemon.attach() as llm:  # so that it is loaded, and stays
            # Once it has answered, its processes have made nearly all of their connections, and can be counted.
            assert llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))[0].error_code == 200
            traffic = Traffic(daemon)
            before, resident = held_by(daemon), defaultdict(list)
            traffic.start(KINDS)
            for period in range(PERIODS):
                traffic.begin_period()
                threading.Event().wait(SECONDS)
                for role, size in resident_of(daemon).items():
                    resident[role].append(size)
                print(period, {role: round(sizes[-1], 1) for role, sizes in resident.items()}, flush=True)
                wait_until(
                    lambda: bool(traffic.wrong) or not traffic.stalled(), "every kind of client is answered", BOUND
                )
                assert not traffic.wrong, "\n".join(traffic.wrong)
                if period < PERIODS - 1:
                    kill_worker(daemon, traffic)
            traffic.end()
            traffic.report()
            for role, sizes in resident.items():
                print(f"{role}: {' '.join(f'{size:.1f}' for size in sizes)} MiB")
            assert not traffic.wrong, "\n".join(traffic.wrong)
            wait_until(daemon.has_nothing_to_do, "blocks are free", BOUND)
            wait_until(lambda: has_settled(held_by(daemon), before), f"back to {before}, from {held_by(daemon)}", BOUND)
            assert daemon.model().restarts == PERIODS - 1
        for role, sizes in resident.items():
            warm, *later = sizes[COLD:]
            assert statistics.median(later[-3:]) <= max(warm * GROWTH, warm + PIECES), f"{role}: {sizes}"


def roles(daemon: RunningDaemon) -> dict[str, int]:
    return {module_of(pid) or "daemon": pid for pid in daemon.processes()}


def held_by(daemon: RunningDaemon) -> dict[str, int]:
    return {role: len(os.listdir(f"/proc/{pid}/fd")) for role, pid in roles(daemon).items()}


def has_settled(held: dict[str, int], before: dict[str, int]) -> bool:
    """Whether the same processes hold as much as before; what leaks with requests or restarts comes to far more."""
    return held.keys() == before.keys() and all(held[role] <= number + LATE for role, number in before.items())


def resident_of(daemon: RunningDaemon) -> dict[str, float]:
    """MiB of each process, the median of several looks under load."""
    seen = defaultdict(list)
    found = roles(daemon)
    for _ in range(12):
        for role, pid in found.items():
            seen[role].append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) / 256)
        time.sleep(0.125)
    return {role: statistics.median(sizes) for role, sizes in seen.items()}


def kill_worker(daemon: RunningDaemon, traffic: Traffic) -> None:
    restarts = daemon.model().restarts
    traffic.noticed_death()
    os.kill(worker_of(daemon), signal.SIGKILL)
    wait_until(lambda: daemon.model().restarts > restarts, "its death is seen")
    wait_until(lambda: daemon.model().state == "ready", "it is started again", BOUND)
    traffic.noticed_death()
