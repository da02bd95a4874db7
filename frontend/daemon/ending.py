"""Ends a daemon that doesn't end when asked: SIGTERM first, then SIGKILL, for its process trees as well.

Signals go through pidfds that were opened before, so a process that has got the same pid meanwhile is never hit. Every
wait is bounded.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ...protocol.errors import PenstockError
from ...protocol.processes.process import wait_for_pidfds
from ..session.tree.vital_signs import descendants, is_stopped

# How long a daemon may take after SIGTERM. One that is stopped (SIGSTOP) can't handle it, so it gets less.
END_SECONDS, _STOPPED_SECONDS = 15.0, 1.0
# Its trees notice its end by themselves, within this time.
_TREE_SECONDS = 3.0
_KILL_SECONDS = 5.0


@dataclass
class DaemonProcess:
    pid: int
    pidfd: int

    def close(self) -> None:
        os.close(self.pidfd)

    def has_ended(self, seconds: float) -> bool:
        """Wait up to `seconds` for its end."""
        return wait_for_pidfds([self.pidfd], seconds)

    def end(self) -> list[str]:
        """End it and its trees; returns a sentence for each thing that was done."""
        with _pidfds_of_descendants(self.pid) as trees:
            was_stopped = is_stopped(self.pid)
            seconds = _STOPPED_SECONDS if was_stopped else END_SECONDS
            _send([self.pidfd], signal.SIGTERM)
            if self.has_ended(seconds):
                done = ["It ended when it was sent SIGTERM."]
            else:
                why = ", being stopped (SIGSTOP)," if was_stopped else ""
                _send([self.pidfd], signal.SIGKILL)
                if not self.has_ended(_KILL_SECONDS):
                    raise PenstockError(
                        f"The daemon (pid {self.pid}) has not ended {_KILL_SECONDS:.0f} s after it was killed: the "
                        "kernel holds it, for a device or a file system that doesn't answer."
                    )
                done = [f"It did not end on SIGTERM{why} within {seconds:.0f} s, and was killed."]
            if not wait_for_pidfds(trees, _TREE_SECONDS):
                num_left = sum(not wait_for_pidfds([tree], 0) for tree in trees)
                _send(trees, signal.SIGKILL)
                wait_for_pidfds(trees, _KILL_SECONDS)
                left, were = ("1 process", "was") if num_left == 1 else (f"{num_left} processes", "were")
                done.append(f"{left} of its models did not end with it, and {were} killed.")
            return done


@contextmanager
def _pidfds_of_descendants(pid: int) -> Iterator[list[int]]:
    """Descriptors of all processes that a process has started, closed afterwards."""
    pidfds: dict[int, int] = {}
    try:
        for child in descendants([pid]):
            with suppress(OSError):
                pidfds[child] = os.pidfd_open(child)
        # Look again now that we have descriptors: a process that still is a descendant was one all the time.
        still = set(descendants([pid]))
        yield [pidfd for child, pidfd in pidfds.items() if child in still]
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)


def _send(pidfds: list[int], number: int) -> None:
    for pidfd in pidfds:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
