"""The lock beside a daemon's socket: one address has one daemon, and the file says which process that is.

The process is named by its number, the time of its start and the boot of the machine, so that whoever wants to end it
ends no other one that has its number by now. Knows nothing of what a daemon does.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ...protocol.errors import ConfigError
from ..vital_signs import start_time
from .ending import DaemonProcess


class DaemonLock:
    """Held for as long as the daemon lives; the kernel lets go of it however it ends."""

    def __init__(self, address: Path) -> None:
        self.path = _lock_of(address)

    def __enter__(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = open(self.path, "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConfigError(
                f"A daemon listens at {self.path.with_suffix('')} already; see `penstock status`, or end it with "
                "`penstock stop`."
            ) from None
        self._write(_name_of(os.getpid()))

    def __exit__(self, *exception: object) -> None:
        self._write("")
        self._file.close()

    def _write(self, text: str) -> None:
        with suppress(OSError):  # on a full disk nobody knows whom to kill, and that is all
            self._file.truncate(0)
            self._file.write(text)
            self._file.flush()


def process_of(address: Path) -> DaemonProcess | None:
    """The daemon's at that address, if it lives and has said so in its lock."""
    with suppress(OSError, ValueError):
        name = _lock_of(address).read_text()
        pid = int(name.partition(" ")[0])
        process = DaemonProcess(pid, os.pidfd_open(pid))
        # Looked at once we hold it: the number is its own for as long as it lives.
        if _name_of(pid) == name:
            return process
        process.close()
    return None


def _lock_of(address: Path) -> Path:
    return address.with_name(address.name + ".lock")


def _name_of(pid: int) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{pid} {start_time(pid)} {boot}"
