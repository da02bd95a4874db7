"""Finds out how a child process ended, even if its parent could not collect it.

In a process that ignores SIGCHLD or collects every child, the code that started a child has nothing left to wait for.
Kernels from 6.15 on still report the status through a pidfd; with older ones it is unknown.
"""

import fcntl
import math
import os
import resource
import select
import signal
import struct

# linux/pidfd.h: PIDFD_GET_INFO is _IOWR(0xFF, 11, struct pidfd_info) with 64 bytes; the mask comes first, the wait
# status last.
_GET_INFO = 0xC040FF0B
_INFO = struct.Struct("=Q52xi")
_INFO_EXIT = 1 << 3
# If another thread collects the child, this one may wake just before the kernel has recorded its status.
_NOTED_MILLISECONDS = 100

# Limits that processes inherit and that may end them, with their options and units in `ulimit`.
_ULIMITS = {
    resource.RLIMIT_CPU: ("t", 1),
    resource.RLIMIT_AS: ("v", 1024),
    resource.RLIMIT_DATA: ("d", 1024),
    resource.RLIMIT_FSIZE: ("f", 1024),
}
UNKNOWN = "ended; how is unknown, because this process ignores SIGCHLD or collects the children of others"


def exit_status(pidfd: int) -> int | None:
    """The return code of an ended child as in `subprocess`, negative for a signal; None if it is unknown."""
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return _noted_status(pidfd)
    if result is None:  # a debugger still holds it
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _noted_status(pidfd: int) -> int | None:
    poll = select.poll()
    poll.register(pidfd, 0)  # POLLHUP, which is always reported, says that the child was collected
    poll.poll(_NOTED_MILLISECONDS)
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, status = _INFO.unpack(info)
    return os.waitstatus_to_exitcode(status) if mask & _INFO_EXIT else None


def describe_status(status: int | None) -> str:
    """The status as the end of a sentence that begins with the process's name."""
    if status is None:
        return UNKNOWN
    if status >= 0:
        return f"exited with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    limits = inherited_limits()
    within = f", with this process's own limits: {limits}" if limits else ""
    return f"was killed by {names.get(-status, f'signal {-status}')}{within}"


def inherited_limits() -> str:
    """The limits that this process passes on to its children, in `ulimit`'s form; empty if there are none."""
    found = ((option, limit(kind) / unit) for kind, (option, unit) in _ULIMITS.items())
    return ", ".join(f"ulimit -{option} {most:.0f}" for option, most in found if most < math.inf)


def limit(kind: int) -> float:
    """This process's limit of this kind, above which the kernel refuses or signals."""
    soft = resource.getrlimit(kind)[0]
    return math.inf if soft == resource.RLIM_INFINITY else soft
