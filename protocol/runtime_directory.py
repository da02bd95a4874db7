"""The private folder that holds one tree's sockets, and the sweeping of folders that dead trees left.

A tree's owner holds a lock on its folder for as long as it lives; the kernel lets go of the lock when the owner ends,
however it ends, so an unlocked folder is nobody's. Paths are kept short: a socket's path has 107 bytes at most.
Knows nothing of processes and messages.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from .errors import ConfigError

_LONGEST_SOCKET_PATH = 107
_LONGEST_NAME = len("/detokenizer")


class RuntimeDirectory:
    """A new folder of mode 0700 under the user's runtime folder; `remove()` when the tree is gone."""

    def __init__(self) -> None:
        base = runtime_base()
        # Held while folders appear and are locked or swept, so that nobody sweeps one that has no lock yet.
        with open(base / "lock", "w") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            sweep(base)
            self.path = Path(tempfile.mkdtemp(dir=base, prefix="t"))
            self._lock = open(self.path / "lock", "w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def runtime_base() -> Path:
    """`$PENSTOCK_RUNTIME_DIR`, else the session's runtime folder, else one of this user's in the temporary folder."""
    if chosen := os.environ.get("PENSTOCK_RUNTIME_DIR"):
        base = Path(chosen)
    elif (session := os.environ.get("XDG_RUNTIME_DIR")) and os.access(session, os.W_OK):
        base = Path(session) / "penstock"
    else:
        base = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = base.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(f"{base} must be this user's own with mode 0700; set PENSTOCK_RUNTIME_DIR to another folder.")
    longest = len(os.fsencode(base)) + len("/t12345678") + _LONGEST_NAME
    if longest > _LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"Socket paths under {base} would have {longest} bytes, and {_LONGEST_SOCKET_PATH} is the system's limit. "
            "Set PENSTOCK_RUNTIME_DIR to a shorter folder."
        )
    return base


def sweep(base: Path) -> None:
    """Remove the folders whose owner is gone."""
    for folder in base.glob("t*"):
        with suppress(OSError), open(folder / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
