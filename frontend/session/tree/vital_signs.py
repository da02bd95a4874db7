"""Reads from /proc whether a process could have worked just now, and whether it did.

A stopped process does nothing, and neither does one that waits for a core on a busy machine: the first counts as hung,
the second doesn't. A process that can't be inspected counts as idle.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ....protocol.processes.heartbeat import Vitals

_READ_BYTES = 4096  # fewer bytes don't count as reading a file
_CPU_SHARE = 0.02  # a smaller share of a core isn't work: retried connections, say


class Chance(NamedTuple):
    """How long a process could have worked in some period."""

    seconds: float  # in which it could have worked
    is_stopped: bool = False  # by SIGSTOP
    is_traced: bool = False  # by a debugger


class Process:
    """A process that is inspected repeatedly."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._cpu_time = 0

    @property
    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def chance(self, seconds: float) -> Chance:
        """Its chance in the last seconds.

        While one of its threads computes or waits for a core, only computing counts, since it may have no core.
        """
        states = thread_states(self.pid)
        cpu_time = _cpu_time(self.pid)
        computed, self._cpu_time = max(0, cpu_time - self._cpu_time) / 1e9, cpu_time
        counted = min(seconds, computed) if "R" in states else seconds
        return Chance(counted, is_stopped="T" in states, is_traced=is_traced(self.pid))


class RemoteProcess:
    """A process on another machine, which inspects it and tells what it sees, at its own pace."""

    def __init__(self, vitals: Callable[[], Vitals]) -> None:
        self._vitals = vitals
        self.forget()

    def forget(self) -> None:
        """Don't count what it could have done up to now."""
        self._counted = self._vitals().chance

    @property
    def pid(self) -> int:
        return self._vitals().pid

    @property
    def is_stopped(self) -> bool:
        return bool(self._vitals().is_stopped)

    @property
    def missed(self) -> float:
        """Seconds for which nothing on its machine has made progress."""
        return self._vitals().missed / 1e9

    def chance(self, seconds: float) -> Chance:
        """Its chance, as far as its machine has told; what exceeds the time that has passed here is counted later."""
        vitals = self._vitals()
        if vitals.is_stopped:  # and stays so until its machine tells otherwise
            self.forget()
            return Chance(seconds, is_stopped=True, is_traced=bool(vitals.is_traced))
        counted = min(int(seconds * 1e9), vitals.chance - self._counted)
        self._counted += counted
        return Chance(counted / 1e9, is_traced=bool(vitals.is_traced))


class Progress:
    """How long processes and their children have neither computed nor read anything."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int, int]] = {}
        self.missed = 0.0  # seconds

    def count(self, pids: Iterable[int], seconds: float) -> None:
        """Count the last seconds, unless one of them waits for a core, or for another process's lock."""
        every = [*pids, *descendants(pids)]
        found = {pid: (_cpu_time(pid), _bytes_read(pid), _page_faults(pid)) for pid in every}
        before, self._before = self._before, found
        cpu_time, num_bytes, faults = (
            sum(now[kind] - before.get(pid, (0, 0, 0))[kind] for pid, now in found.items()) for kind in range(3)
        )
        if cpu_time > seconds * 1e9 * _CPU_SHARE or num_bytes >= _READ_BYTES or faults > 0:
            self.missed = 0.0
        elif not any("R" in thread_states(pid) for pid in every) and _waiting_for_locks().isdisjoint(every):
            self.missed += seconds


def thread_states(pid: int) -> str:
    """A letter for each thread: R runs or is ready, S and D wait, T is stopped, t is held by a debugger."""
    return "".join(fields[0] for fields in map(_stat, _threads(pid)) if fields)


def is_stopped(pid: int) -> bool:
    return "T" in thread_states(pid)


def is_traced(pid: int) -> bool:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("TracerPid:"):
                return line.split()[1] != "0"
    return False


def start_time(pid: int) -> int | None:
    """The system's ticks at its start; together with the pid they identify a process."""
    fields = _stat(Path(f"/proc/{pid}"))
    return int(fields[19]) if fields else None


def descendants(pids: Iterable[int]) -> list[int]:
    """Children of these processes, and theirs."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(path):
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found, open_ends = [], list(pids)
    while open_ends:
        new = children.get(open_ends.pop(), [])
        found += new
        open_ends += new
    return found


def _threads(pid: int) -> Iterator[Path]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            yield Path(f"/proc/{pid}/task/{name}")


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may contain anything; empty if the process is gone."""
    with suppress(OSError):
        return (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _cpu_time(pid: int) -> int:
    """Nanoseconds of processor time of its threads."""
    total = 0
    for thread in _threads(pid):
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):  # some kernels lack it; then use ticks of 10 ms
            total += sum(map(int, _stat(thread)[11:13])) * 10_000_000
    return total


def _bytes_read(pid: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "read_bytes:")))
    return 0


def _page_faults(pid: int) -> int:
    """Page faults for which something had to be read."""
    fields = _stat(Path(f"/proc/{pid}"))
    return int(fields[9]) if fields else 0


def _waiting_for_locks() -> set[int]:
    """Processes that wait for another process's lock on a file."""
    with suppress(OSError):
        lines = Path("/proc/locks").read_text().splitlines()
        return {int(line.split()[5]) for line in lines if " -> " in line}
    return set()


def oom_kills() -> int:
    """How many processes the kernel has killed for memory in this control group."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/sys/fs/cgroup/memory.events").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return 0
