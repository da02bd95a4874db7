"""Start a child process by name, notice its end, and end it: the parent's side.

A child gets the read end of a pipe whose write end only this process holds, and this process's id; it watches both
(`child.py`). It runs in a session of its own, so that a Ctrl-C at the terminal reaches only the caller, and inherits
nothing but its log file. Every wait here is bounded. Knows nothing of what a child does.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A tree that is asked to stop has that long before it is told (TERM), and then before it is killed.
ASK_SECONDS = 1.0
TELL_SECONDS = 0.5
# One that was killed ends as soon as the kernel lets go of it, which a device or a file system may keep it from.
KILL_SECONDS = 5.0


class LifePipe:
    """Its write end is closed by the kernel when this process ends, and by `close()`: then every child exits."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()

    def close_read_end(self) -> None:
        """Once the children have theirs."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    def close(self) -> None:
        self.close_read_end()
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


@dataclass
class ChildProcess:
    role: str
    popen: "subprocess.Popen[bytes]"
    pidfd: int  # readable once the child has ended

    @property
    def has_ended(self) -> bool:
        return self.popen.poll() is not None

    @property
    def was_killed(self) -> bool:
        return (self.popen.poll() or 0) < 0

    def describe_end(self) -> str:
        """How it ended, in words; only after `has_ended`."""
        status = self.popen.wait()
        if status >= 0:
            return f"The {self.role} process (pid {self.popen.pid}) exited with status {status}"
        name = signal.Signals(-status).name
        return f"The {self.role} process (pid {self.popen.pid}) was killed by {name}"

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.popen.send_signal(number)


def start_child(
    role: str,
    module: str,
    arguments: Sequence[str],
    life: LifePipe,
    log: Path,
    environment: dict[str, str],
    descriptors: Sequence[int] = (),
) -> ChildProcess:
    """`python -P -m module arguments…` with this process's own module search path; it inherits the descriptors."""
    command = [sys.executable, "-P", "-m", module, *arguments, "--parent", str(os.getpid())]
    command += ["--life", str(life.read_end)]
    with open(log, "ab") as log_file:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            pass_fds=(life.read_end, *descriptors),
            start_new_session=True,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(inherited_path())},
        )
    return ChildProcess(role, popen, os.pidfd_open(popen.pid))


def inherited_path() -> list[str]:
    """This process's `sys.path` less the current folder and the script's own: a msgspec.py there is not ours."""
    main_file = getattr(sys.modules.get("__main__"), "__file__", None)
    own_folder = os.path.dirname(os.path.abspath(main_file)) if main_file else None
    return [entry for entry in sys.path if entry not in ("", own_folder)]


def wait_for_ends(children: Sequence[ChildProcess], seconds: float) -> bool:
    """Wait until all have ended, `seconds` at most; True if they have."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    left = [child for child in children if not child.has_ended]
    for child in left:
        poll.register(child.pidfd, select.POLLIN)
    while left:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        poll.poll(remaining * 1000)
        for child in [child for child in left if child.has_ended]:
            poll.unregister(child.pidfd)
            left.remove(child)
    return True


def end_children(children: Sequence[ChildProcess], ask: Callable[[], None] | None) -> None:
    """Ask, then TERM, then KILL, each with its bound."""
    if ask is not None:
        ask()
    if ask is None or not wait_for_ends(children, ASK_SECONDS):
        for number, seconds in ((signal.SIGTERM, TELL_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            for child in children:
                if not child.has_ended:
                    child.send(number)
            if wait_for_ends(children, seconds):
                break
    for child in children:
        if child.pidfd >= 0:
            os.close(child.pidfd)
            child.pidfd = -1
