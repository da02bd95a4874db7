"""A pipe by which a child ends with its parent, whatever state either of them is in: the kernel sends the signal.

The parent holds the only write end. The kernel closes it when the parent ends, executes another program or closes it
itself, and then sends SIGKILL to the owner of the read end, which is the child's process group. That takes no work of
the child's, which may be stopped, or hold the interpreter's lock in a native call, or not have started its interpreter;
and what it has started itself goes with it. PR_SET_PDEATHSIG would do as much only where the *thread* that starts a
child lives as long as its process, and trees are started by threads that come and go.

Processes that the parent forks close their copies at once, so that only the parent's end counts. Until `hold`, in a
child's first millisecond, another rule of the kernel's ends one that is stopped: to a process group that its parent's
end leaves orphaned in its session, it sends SIGHUP and SIGCONT. What is left is the moment before a child has made its
group, and one whose stop and whose parent's end come together in that millisecond: it stays stopped, and in the first
case so do others of that parent that are. Knows nothing of what a child does.
"""

import fcntl
import os
import signal
import threading
from contextlib import suppress

_open: "set[LifePipe]" = set()
# Held while a pipe comes or goes, so that a fork finds each either whole and listed, or not there at all.
_lock = threading.RLock()


class LifePipe:
    """Of one child, which inherits `read_end`; it is kept here too, for a child that ends before what it started."""

    def __init__(self) -> None:
        with _lock:
            self.read_end, self._write_end = os.pipe()
            _open.add(self)

    def hold(self, group: int) -> None:
        """From now on this process group ends with this process, or with `close()`."""
        with suppress(OSError):  # the group has ended, or this is a kernel that doesn't know how
            fcntl.fcntl(self.read_end, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.read_end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.read_end, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """End what is left of the group. Safe to call twice."""
        with _lock:
            if self in _open:
                _open.discard(self)
                os.close(self._write_end)
                os.close(self.read_end)


def _close_copies() -> None:
    """In a process that was just forked: the children are its parent's."""
    for pipe in list(_open):
        pipe.close()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_copies)
