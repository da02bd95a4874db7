"""Starts, watches and ends a child process: the parent's side.

Each child ends with this process, by a pipe that the kernel watches (`parent_pipe.py`); our modules also watch for it
themselves (`child.py`). A child runs in a process group of its own, so that a Ctrl-C at the terminal reaches only the
caller, and inherits nothing but its standard streams. Every wait here is bounded.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...records import dataclass
from ..errors import ConfigError
from .descriptors import is_readable, said_in_words
from .exit_status import describe_status, exit_status
from .parent_pipe import LifePipe

# How long a tree may take to stop before it gets TERM, and then before it is killed.
ASK_SECONDS = 1.0
TELL_SECONDS = 0.5
# The kernel may take a while to free a killed process's memory; one that hangs in a driver is left to the kernel.
_KILL_SECONDS = 10.0
_PACKAGE = Path(__file__).parents[2]


@dataclass
class ChildProcess:
    role: str
    popen: "subprocess.Popen[bytes]"
    pidfd: int  # readable once the child has ended
    life: LifePipe
    status: int | None = None  # once it has ended, if it is known
    _is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        with self._lock:
            if not self._is_over and is_readable(self.pidfd):
                self.status = exit_status(self.pidfd)
                self.popen.returncode = self.status or 0  # it has been waited for
                self._is_over = True
            return self._is_over

    @property
    def was_killed(self) -> bool:
        return self.has_ended and (self.status or 0) < 0

    @property
    def processor_seconds(self) -> float:
        """How much processor time it has taken; 0 if it has gone."""
        with suppress(OSError):
            fields = Path(f"/proc/{self.popen.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def describe_end(self) -> str:
        """How it ended, in words; only after `has_ended`."""
        return f"The {self.role} process (pid {self.popen.pid}) {describe_status(self.status)}"

    def send(self, number: int) -> None:
        with self._lock, suppress(ProcessLookupError):
            if not self._is_over:
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Kill it and everything it has started, unless it has ended; then release it."""
        self.life.close()
        if not self.has_ended:
            self.send(signal.SIGKILL)
            wait_for_ends([self], _KILL_SECONDS)
        with self._lock:
            self._is_over = True
            if self.pidfd >= 0:
                os.close(self.pidfd)
                self.pidfd = -1


def start_process(role: str, command: Sequence[str], **options: Any) -> ChildProcess:
    """Start a program; `options` are those of `subprocess.Popen`. Raises an error that says why it could not be
    started."""
    with said_in_words(f"The {role} process could not be started"):
        return _started(role, command, LifePipe(), options)


def start_child(role: str, module: str, arguments: Sequence[str], **options: Any) -> ChildProcess:
    """`python -P -m module arguments…` with this process's own module search path; it calls `child.begin` first."""
    environment = {**os.environ, **options.pop("env", {}), "PYTHONPATH": os.pathsep.join(inherited_path())}
    with said_in_words(f"The {role} process could not be started"):
        life = LifePipe()
        command = [sys.executable, "-P", "-m", module, str(os.getpid()), str(life.read_end), *arguments]
        return _started(role, command, life, options | {"env": environment})


def _started(role: str, command: Sequence[str], life: LifePipe, options: dict[str, Any]) -> ChildProcess:
    shared = options.pop("pass_fds", ())
    popen = subprocess.Popen.__new__(subprocess.Popen)  # so that its `pid` is known even if its start is interrupted
    try:
        # Still in this session: before `hold`, the kernel wakes and ends a stopped child in its orphaned group.
        own = {"cwd": working_folder(), "pass_fds": (life.read_end, *shared), "process_group": 0}
        popen.__init__(command, **own, **options)  # type: ignore[misc]
        life.hold(popen.pid)
        return ChildProcess(role, popen, os.pidfd_open(popen.pid), life)
    except ProcessLookupError:  # it has ended, and someone else has collected it
        popen.returncode = 0
        return ChildProcess(role, popen, -1, life, _is_over=True)
    except BaseException:
        if getattr(popen, "pid", None) is not None and popen.returncode is None:
            life.hold(popen.pid)
            life.close()
            popen.kill()
            popen.wait()
        life.close()
        raise


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to. If it can't be opened, a child's output is lost, and nothing else."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC), "ab")
    except OSError:
        return open(os.devnull, "ab")


def working_folder() -> str | None:
    """The folder to start a child in: None for our own, or the root if ours was removed, since MKL can't load there."""
    try:
        os.getcwd()
    except OSError:
        return "/"
    return None


class CompletedProcess(NamedTuple):
    status: int | None
    output: bytes
    errors: bytes


def run_to_end(child: Callable[..., ChildProcess], seconds: float) -> CompletedProcess:
    """Run a process, started by `child` with the given streams, and return its output. Raises TimeoutError."""
    with said_in_words("A helper process could not be started"), ExitStack() as files:
        # Files in memory: unlike pipes, they take any amount without a reader.
        streams = [files.enter_context(open(os.memfd_create(name), "r+b")) for name in ("output", "errors")]
        started = child(stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1])
        try:
            if not wait_for_ends([started], seconds):
                raise TimeoutError
        finally:
            started.close()
        said = []
        for stream in streams:
            stream.seek(0)
            said.append(stream.read())
        return CompletedProcess(started.status, *said)


def inherited_path() -> list[str]:
    """This process's `sys.path` without the current folder and the script's folder: a msgspec.py there is not ours.

    If this package was found there, processes find it behind everything else.
    """
    main_file = getattr(sys.modules.get("__main__"), "__file__", None)
    own_folder = None
    with suppress(OSError):  # a relative name, and the working folder was removed
        own_folder = os.path.dirname(os.path.abspath(main_file)) if main_file else None
    path = [entry for entry in sys.path if entry not in ("", own_folder)]
    found = next((each for entry in path if (each := Path(entry, __name__.partition(".")[0])).is_dir()), None)
    if found is None:
        return [*path, str(_PACKAGE.parent)]
    _require_same_package(found)
    return path


@cache
def _require_same_package(found: Path) -> None:
    """Processes that exchange messages run one version of this package."""
    if found.samefile(_PACKAGE):
        return
    for source in found.rglob("*.py"):
        own = _PACKAGE / source.relative_to(found)
        if not own.is_file() or own.read_bytes() != source.read_bytes():
            raise ConfigError(
                f"This process found {_PACKAGE} in its own folder, but {found} is installed, and they differ "
                f"({own.relative_to(_PACKAGE)}). Start it from another folder, or install that one."
            )


def wait_for_ends(children: Sequence[ChildProcess], seconds: float) -> bool:
    """Wait until all have ended, `seconds` at most; True if they have."""
    wait_for_pidfds([child.pidfd for child in children if not child.has_ended], seconds)
    ended = [child.has_ended for child in children]  # asking collects the child
    return all(ended)


def wait_for_pidfds(pidfds: Sequence[int], seconds: float) -> bool:
    """The same for processes that need not be our children."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    num_left = len(pidfds)
    while num_left:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ended:
            return False
        for pidfd, _ in ended:
            poll.unregister(pidfd)
        num_left -= len(ended)
    return True


def end_children(
    children: Sequence[ChildProcess], ask: Callable[[], None] | None, ask_seconds: float = ASK_SECONDS
) -> None:
    """Ask, then TERM, then KILL, each with its bound; without `ask`, kill at once."""
    try:
        if ask is not None:
            ask()
            if not wait_for_ends(children, ask_seconds):
                for child in children:
                    child.send(signal.SIGTERM)
                wait_for_ends(children, TELL_SECONDS)
    finally:
        for child in children:  # kill all first; `close` waits for each
            child.life.close()
        for child in children:
            child.close()
