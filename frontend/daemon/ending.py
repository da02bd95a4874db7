"""Ends a daemon that doesn't end when it is asked to: told (TERM), then killed, and its trees with it.

Every process is held by a descriptor of its own before it is sent anything, so that none is hit which has its number by
then. Every wait is bounded. Knows nothing of sockets, and of locks.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ...protocol.errors import PenstockError
from ...protocol.process import wait_for_pidfds
from ..session.tree.vital_signs import descendants, is_stopped

# After it is told to, a daemon has so long to end its processes; one that is stopped hears nothing.
END_SECONDS, _STOPPED_SECONDS = 15.0, 1.0
# Its trees notice its end by themselves, and have so long.
_TREE_SECONDS = 3.0
_KILL_SECONDS = 5.0


@dataclass
class DaemonProcess:
    pid: int
    pidfd: int

    def close(self) -> None:
        os.close(self.pidfd)

    def has_ended(self, seconds: float) -> bool:
        """Within so many seconds."""
        return wait_for_pidfds([self.pidfd], seconds)

    def end(self) -> list[str]:
        """Returns when it and its trees have; a sentence for each thing that was done."""
        with _held(self.pid) as trees:
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
                done.append(f"{num_left} processes of its models did not end with it, and were killed.")
            return done


@contextmanager
def _held(pid: int) -> Iterator[list[int]]:
    """Descriptors of all that a process has started."""
    held: dict[int, int] = {}
    try:
        for child in descendants([pid]):
            with suppress(OSError):
                held[child] = os.pidfd_open(child)
        # Looked at again now that we hold them: what still is its child was so all the time.
        still = set(descendants([pid]))
        yield [pidfd for child, pidfd in held.items() if child in still]
    finally:
        for pidfd in held.values():
            os.close(pidfd)


def _send(pidfds: list[int], number: int) -> None:
    for pidfd in pidfds:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
