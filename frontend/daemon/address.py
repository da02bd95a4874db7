"""A daemon's socket, and the lock file next to it: one address has one daemon.

A lock file that carries Penstock's mark shows that the socket next to it belonged to a daemon. If nobody holds the
lock, that daemon is dead and its socket is removed; anything else of that name is left alone.
"""

import fcntl
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from ...protocol.errors import ConfigError
from ...protocol.files.own_folder import lock_file
from ...protocol.files.user_folders import reason
from .lock import MARK, lock_of, write_owner


class Address:
    """Holds the lock while its `with` block runs; the kernel releases it however the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = lock_of(path)
        self._bound: os.stat_result | None = None

    def __enter__(self) -> "Address":
        if os.path.lexists(self.path) and not os.path.lexists(self._lock_path):
            raise self._taken()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = lock_file(self._lock_path)
        except OSError as error:
            raise ConfigError(f"{self._lock_path} cannot be made: {reason(error)}. Name another --socket.") from error
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"A daemon listens at {self.path} already; see `penstock status`, or end it with `penstock stop`."
            ) from None
        found = os.pread(self._lock, len(MARK), 0)
        if not MARK.startswith(found):
            raise ConfigError(f"{self._lock_path} is there, and is not Penstock's. Name another --socket.")
        if os.path.lexists(self.path):
            if found != MARK or not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise self._taken()
            self.path.unlink()  # its daemon is dead: we hold the lock
        os.pwrite(self._lock, MARK, 0)
        write_owner(self._lock, os.getpid())

    def _taken(self) -> ConfigError:
        return ConfigError(f"{self.path} is there, and is no socket of a dead daemon's. Name another --socket.")

    def listen(self) -> socket.socket:
        """The listening socket, accessible only to this user from the moment it exists."""
        status = self.path.parent.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise ConfigError(
                f"{self.path.parent} must be this user's own with mode 0700: the daemon's socket lies there."
            )
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listening.bind(os.fspath(self.path))
            self._bound = os.lstat(self.path)
        except OSError as error:
            listening.close()
            raise ConfigError(
                f"No socket can be made at {self.path}: {error}. Name another with --socket, or set "
                "PENSTOCK_RUNTIME_DIR."
            ) from error
        finally:
            os.umask(mask)
        listening.setblocking(False)
        return listening

    def remove(self) -> None:
        """Remove the socket, so that nobody else connects; a file that has taken its name meanwhile is kept."""
        with suppress(OSError):  # somebody else has removed it
            found = os.lstat(self.path)
            # A removed file's inode number may belong to another file by now, so its kind is checked too.
            if self._bound and stat.S_ISSOCK(found.st_mode) and os.path.samestat(self._bound, found):
                self.path.unlink()

    def __exit__(self, *exception: object) -> None:
        write_owner(self._lock, None)
        os.close(self._lock)
