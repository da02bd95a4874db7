"""The lock file next to a daemon's socket: it has Penstock's mark and the identity of the process that holds the lock.

The identity is the process's number, its start time and the id of the machine's boot, so that ending the daemon never
ends another process with the same pid.
"""

import os
from contextlib import suppress
from pathlib import Path

from ...protocol.files.own_folder import mark
from ..session.tree.vital_signs import start_time
from .ending import DaemonProcess

MARK = mark("lock of a daemon's socket")


def lock_of(address: Path) -> Path:
    return address.with_name(address.name + ".lock")


def write_owner(lock: int, pid: int | None) -> None:
    """Write the owner into the open lock file; None when the owner ends. Called by the owner of the lock."""
    with suppress(OSError):  # as on a full disk: then `penstock stop` can't kill a daemon that hangs
        os.ftruncate(lock, len(MARK))
        if pid is not None:
            os.pwrite(lock, _identity(pid).encode(), len(MARK))


def process_of(address: Path) -> DaemonProcess | None:
    """The daemon at that address, if it lives and its lock file names its process."""
    with suppress(OSError, ValueError):
        found = lock_of(address).read_bytes()
        if not found.startswith(MARK):
            return None
        name = found.removeprefix(MARK).decode()
        pid = int(name.partition(" ")[0])
        process = DaemonProcess(pid, os.pidfd_open(pid))
        # Compared after the descriptor is open: while that process lives, nobody else gets its number.
        if _identity(pid) == name:
            return process
        process.close()
    return None


def _identity(pid: int) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{pid} {start_time(pid)} {boot}"
