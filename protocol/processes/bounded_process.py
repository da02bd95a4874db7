"""Runs jobs that may hang, grow or crash in a process with limits, one after another.

`BoundedProcess` is the caller's side, `serve` the side of the process. The kernel bounds the processor time and memory
of each job; the caller bounds its wall time. A job that ends the process fails alone: the next job gets a new process.
The caller's own limits apply, too (`ulimit`, as batch systems set them).
"""

import math
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from .child import begin
from .exit_status import inherited_limits, limit
from .process import ChildProcess, start_child, wait_for_ends

_HEAD_BYTES = 8
_PIECE_BYTES = 1 << 20
# Sent before an answer: whether the process takes another job.
_LAST, _MORE = b"1", b"0"
_CLOSED = "was ended with what it worked for"
# A process that has closed its socket is about to end, too.
_LAST_SECONDS = 1.0


class Bounds(NamedTuple):
    """Limits of one job; memory counts beyond that of the process at its start."""

    cpu_seconds: int = 5
    memory_bytes: int = 512 << 20
    wall_seconds: float = 30.0  # for a process that gets no processor time
    nice: int = 0


class JobDiedError(Exception):
    """The job has ended its process; the message says how, as the end of a sentence."""


class _KilledError(JobDiedError):
    """Killed from outside, by a person or by a kernel without memory: perhaps not the job's fault."""


class BoundedProcess:
    """One process, started when it is first needed and again after it has died; one job at a time."""

    def __init__(self, role: str, module: str, bounds: Bounds) -> None:
        self.role = role
        self.module = module
        self.bounds = bounds
        self.generation = 0  # counts processes: each knows only its own jobs
        self.processor_seconds = 0.0  # of the last job that was answered
        self._process: ChildProcess | None = None
        self._line: socket.socket | None = None
        self._is_closed = False
        self._at_work = threading.RLock()

    def start(self) -> None:
        """Start the process for the first job; returns at once."""
        self._ready()

    def _ready(self) -> tuple[ChildProcess, socket.socket]:
        with self._at_work:
            if self._is_closed:
                raise JobDiedError(_CLOSED)
            if self._process is None or self._line is None or self._process.has_ended:
                self._release()
                self._process, self._line = _started(self.role, self.module, self.bounds)
                self.generation += 1
                if self._is_closed:  # meanwhile, by another thread
                    self._process.send(signal.SIGKILL)
            return self._process, self._line

    def ask(self, job: bytes) -> bytearray:
        """Run a job and return its answer; raises `JobDiedError` if the job ends the process."""
        return self.ask_as(lambda generation: job)

    def ask_as(self, job_for: Callable[[int], bytes]) -> bytearray:
        """The same for a job that builds on earlier ones: `job_for` gets the generation of its process."""
        with self._at_work:
            try:
                return self._ask(job_for)
            except _KilledError:
                return self._ask(job_for)

    def _ask(self, job_for: Callable[[int], bytes]) -> bytearray:
        process, line = self._ready()
        job, before = job_for(self.generation), process.processor_seconds
        deadline = time.monotonic() + self.bounds.wall_seconds
        try:
            _send(line, job, deadline)
            is_last, answer = _exactly(line, 1, deadline) == bytearray(_LAST), _received(line, deadline)
        except TimeoutError:
            process.send(signal.SIGKILL)
            self._release()
            raise JobDiedError(f"takes more than {self.bounds.wall_seconds:g} s{_inherited()}") from None
        except OSError:
            answer = None
        except BaseException:  # Ctrl-C, say: a late answer would be taken for the next job's
            process.send(signal.SIGKILL)
            self._release()
            raise
        if answer is None:
            raise self._error()
        self.processor_seconds = process.processor_seconds - before
        if is_last:
            self._release()
        return answer

    def close(self) -> None:
        """End the process for good, whatever it is doing. Any thread may call this."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.send(signal.SIGKILL)
        with self._at_work:  # the end of the process answers its current job
            self._release()

    def _error(self) -> JobDiedError:
        status = self._release()
        if self._is_closed:
            return JobDiedError(_CLOSED)
        if status == -signal.SIGXCPU:
            return JobDiedError(f"takes more than {self.bounds.cpu_seconds} s of processor time{_inherited()}")
        kind = _KilledError if status == -signal.SIGKILL else JobDiedError
        most = f"{self.bounds.memory_bytes >> 20} MiB{_inherited()}"
        return kind(f"takes more than {most}, or breaks what computes it")

    def _release(self) -> int | None:
        """Let go of the process; returns its exit status."""
        if self._process is None or self._line is None:
            return None
        process, line, self._process, self._line = self._process, self._line, None, None
        line.close()
        wait_for_ends([process], _LAST_SECONDS)  # by itself: its own status says more than a kill's
        process.close()
        return process.status


class BoundedPool:
    """Processes of one kind, one for each thread that has a job; each is started when it is first needed, and stays."""

    def __init__(self, role: str, module: str, bounds: Bounds) -> None:
        self._kind = role, module, bounds
        self._lock = threading.Lock()
        self._all: list[BoundedProcess] = []
        self._idle: list[BoundedProcess] = []
        self._is_closed = False

    def take(self) -> BoundedProcess:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            process = BoundedProcess(*self._kind)
            if self._is_closed:
                process.close()
            self._all.append(process)
            return process

    def give_back(self, process: BoundedProcess) -> None:
        with self._lock:
            self._idle.append(process)

    def forget(self, process: BoundedProcess) -> None:
        """Instead of giving it back, as it was closed."""
        with self._lock:
            self._all.remove(process)

    def close(self) -> None:
        """End them all; their jobs end with `JobDiedError`."""
        with self._lock:
            self._is_closed = True
            processes = list(self._all)
        for process in processes:
            process.close()


def _inherited() -> str:
    """The process's limits besides its bounds, as a part of a sentence; empty if there are none."""
    limits = inherited_limits()
    return f" (or than this process's own limits leave it: {limits})" if limits else ""


def _started(role: str, module: str, bounds: Bounds) -> tuple[ChildProcess, socket.socket]:
    """The process and the socket to it, which is its standard input."""
    ours, theirs = socket.socketpair()
    with theirs:
        nothing = subprocess.DEVNULL
        return start_child(role, module, [*map(str, bounds)], stdin=theirs, stdout=nothing, stderr=nothing), ours


def _send(line: socket.socket, content: bytes, deadline: float | None = None) -> None:
    line.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
    line.sendall(len(content).to_bytes(_HEAD_BYTES, "little") + content)


def _received(line: socket.socket, deadline: float | None = None) -> bytearray | None:
    """The next message; None if the connection has ended."""
    head = _exactly(line, _HEAD_BYTES, deadline)
    return None if head is None else _exactly(line, int.from_bytes(head, "little"), deadline)


def _exactly(line: socket.socket, length: int, deadline: float | None) -> bytearray | None:
    """Receive exactly this many bytes, without a final copy: they may be many."""
    found = bytearray()
    while len(found) < length:
        line.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        piece = line.recv(min(length - len(found), _PIECE_BYTES))
        if not piece:
            return None
        found += piece
    return found


# --- the process -----------------------------------------------------------------------------------------------------


def serve(make: Callable[[], Callable[[bytes], bytes]]) -> None:
    """Answer jobs until the other side ends. `make` loads what they need, before memory is bounded."""
    limits = _JobLimits(_begun())
    work = make()
    limits.bound_memory()
    line = socket.socket(fileno=0)
    while (job := _received(line)) is not None:
        limits.bound_time()
        answer = work(bytes(job))
        # A process that has grown, or has little time left, leaves the next job to a new one with full limits.
        is_last = limits.are_near
        line.sendall(_LAST if is_last else _MORE)
        _send(line, answer)
        if is_last:
            return


def _begun() -> Bounds:
    cpu_seconds, memory_bytes, wall_seconds, nice = begin()
    os.nice(int(nice))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # if memory is short, the kernel kills this process before those that hold models
    return Bounds(int(cpu_seconds), int(memory_bytes), float(wall_seconds), int(nice))


class _JobLimits:
    """The limits of this process: those for jobs, or its inherited ones if they are lower."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._most_memory = limit(resource.RLIMIT_AS)
        # One second less than the hard limit, at which the kernel kills without a reason.
        self._most_seconds = min(limit(resource.RLIMIT_CPU), max(_hard(resource.RLIMIT_CPU) - 1, 1))
        self._size, self._memory, self._seconds = 0, 0.0, math.inf  # set at the first job: in use, and left
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_CPU, self._most_seconds)

    def bound_memory(self) -> None:
        """Limit the address space to this much beyond the current size."""
        self._size = address_space()
        self._memory = min(self._bounds.memory_bytes, self._most_memory - self._size)
        self._seconds = self._most_seconds - _processor_time()
        _lower(resource.RLIMIT_AS, self._size + self._memory)

    def bound_time(self) -> None:
        """Limit processor time to this much from now; beyond it the kernel sends SIGXCPU."""
        end = math.ceil(_processor_time()) + self._bounds.cpu_seconds
        _lower(resource.RLIMIT_CPU, min(end, self._most_seconds))

    @property
    def are_near(self) -> bool:
        """Whether a new process would have far more left than this one."""
        seconds = self._most_seconds - _processor_time()
        has_time = seconds >= min(self._bounds.cpu_seconds, self._seconds / 2)
        return not has_time or address_space() > self._size + self._memory // 2


def _hard(kind: int) -> float:
    hard = resource.getrlimit(kind)[1]
    return math.inf if hard == resource.RLIM_INFINITY else hard


def _lower(kind: int, most: float) -> None:
    """Set the soft limit. The hard one stays: we may not raise it, and couldn't lower it for one job alone."""
    soft = resource.RLIM_INFINITY if most == math.inf else int(most)
    resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def address_space() -> int:
    """The size of this process's address space in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
