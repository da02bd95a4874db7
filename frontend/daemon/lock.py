"""The file of the lock beside a daemon's socket, which says whose it is: our mark, then which process holds the lock.

The process is named by its number, the time of its start and the boot of the machine, so that whoever wants to end it
ends no other one that has its number by now. Knows nothing of what a daemon does.
"""

import os
from contextlib import suppress
from pathlib import Path

from ...protocol.own_folder import mark
from ..session.tree.vital_signs import start_time
from .ending import DaemonProcess

MARK = mark("lock of a daemon's socket")


def lock_of(address: Path) -> Path:
    return address.with_name(address.name + ".lock")


def write_owner(lock: int, pid: int | None) -> None:
    """Into the open file, by who holds the lock; None: nobody's from now on."""
    with suppress(OSError):  # on a full disk nobody knows whom to kill, and that is all
        os.ftruncate(lock, len(MARK))
        if pid is not None:
            os.pwrite(lock, _name_of(pid).encode(), len(MARK))


def process_of(address: Path) -> DaemonProcess | None:
    """The daemon's at that address, if it lives and has said so in its lock."""
    with suppress(OSError, ValueError):
        found = lock_of(address).read_bytes()
        if not found.startswith(MARK):
            return None
        name = found.removeprefix(MARK).decode()
        pid = int(name.partition(" ")[0])
        process = DaemonProcess(pid, os.pidfd_open(pid))
        # Looked at once we hold it: the number is its own for as long as it lives.
        if _name_of(pid) == name:
            return process
        process.close()
    return None


def _name_of(pid: int) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{pid} {start_time(pid)} {boot}"
