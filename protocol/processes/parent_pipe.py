"""A pipe that ends a child (`protocol/processes/child.py`) with its parent: the kernel sends the signal.

It works whatever state either is in. The parent holds the only write end. The kernel closes it when the parent ends,
executes another program or closes it itself, and then sends SIGKILL to the owner of the read end, which is the child's
process group. That needs no cooperation from the child, which may be stopped, may hold the interpreter's lock in a
native call, or may not have started its interpreter. Its own children end with it. PR_SET_PDEATHSIG would do the same
only if the *thread* that starts a child lived as long as its process, but trees are started by short-lived threads.

Processes that the parent forks close their copies at once, so that only the parent's end counts. Until `hold`, in a
child's first millisecond, another kernel rule ends a stopped child: a process group orphaned by its parent's end gets
SIGHUP and SIGCONT. Two gaps are left: the moment before a child has made its group, and a child that is stopped and
orphaned within that millisecond. Then it stays stopped, and in the first case so do other stopped children of that
parent.
"""

import fcntl
import os
import signal
import threading
from contextlib import suppress

_open: "set[LifePipe]" = set()
# Held while a pipe is created or closed, so that a fork finds it either open and listed, or gone.
_lock = threading.RLock()


class LifePipe:
    """The pipe of one child, which inherits `read_end`. We keep that end, too: the child may end before its own
    children."""

    def __init__(self) -> None:
        with _lock:
            self.read_end, self._write_end = os.pipe()
            _open.add(self)

    def hold(self, group: int) -> None:
        """From now on this process group ends with this process, or with `close()`."""
        with suppress(OSError):  # the group has ended, or the kernel doesn't support this
            fcntl.fcntl(self.read_end, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.read_end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.read_end, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """End the rest of the group. Safe to call twice."""
        with _lock:
            if self in _open:
                _open.discard(self)
                os.close(self._write_end)
                os.close(self.read_end)


def _close_copies() -> None:
    """Run in a forked process: the children belong to its parent."""
    for pipe in list(_open):
        pipe.close()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_copies)
