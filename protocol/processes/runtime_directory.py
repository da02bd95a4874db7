"""Where sockets are: in a private folder of each tree, and those that dead trees left are removed; and the daemon's.

A tree's owner holds a lock on its folder as long as it lives. The next start removes folders of trees that nobody holds
(`own_folder.py`). Paths are kept short: a socket's path has 107 bytes at most.
"""

import os
from pathlib import Path

from ..errors import ConfigError
from ..files.own_folder import HeldFolder
from ..files.user_folders import named_by, reason, temporary, usable

VARIABLE = "PENSTOCK_RUNTIME_DIR"
_TREE = "sockets of a process tree"
_LONGEST_SOCKET_PATH = 107
_LONGEST_NAME = len("/t12345678/detokenizer")


class RuntimeDirectory:
    """A new folder of mode 0700 under the user's runtime folder; `remove()` when the tree is gone."""

    def __init__(self) -> None:
        base = runtime_base()
        try:
            self._folder = HeldFolder.new(base, "t", _TREE)
        except OSError as error:
            why = f"{base} cannot be written: {reason(error)}"
            raise ConfigError(f"{why}. Set {VARIABLE} to another folder.") from error
        self.path = self._folder.path

    def remove(self) -> None:
        self._folder.remove()


def runtime_base() -> Path:
    """Our own folder in `$PENSTOCK_RUNTIME_DIR`, else the session's runtime folder, else the temporary folder."""
    if chosen := os.environ.get(VARIABLE):
        return _chosen(chosen)
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or ".")
    if session.is_absolute() and _is_private(session):
        try:
            base = usable(session)
            if _is_private(base) and _fits(base):
                return base
        except OSError:
            pass  # the temporary folder will do
    try:
        return temporary(lambda base: _is_private(base) and _fits(base))
    except OSError as error:
        raise ConfigError(
            "The sockets of a tree have no usable folder: neither XDG_RUNTIME_DIR nor TMPDIR, /tmp, /var/tmp and "
            f"/dev/shm can be used ({reason(error)}). Set {VARIABLE} to a folder of this user's with a short path."
        ) from error


def daemon_socket() -> Path:
    """The socket on which this user's daemon listens by default."""
    folder = runtime_base() / "daemon"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}. Set {VARIABLE} to another folder.") from error
    return folder / "socket"


def _chosen(name: str) -> Path:
    folder = os.path.expanduser(name)
    if os.path.isdir(folder) and not _is_private(Path(folder)):
        raise ConfigError(
            f"{VARIABLE}={name} must be this user's own with mode 0700, since sockets lie there. `chmod 700` it, or "
            "set it to a folder that isn't there yet."
        )
    try:
        base = named_by(VARIABLE)
    except OSError as error:
        raise ConfigError(f"{VARIABLE}={name} cannot be written: {reason(error)}. Set it to another folder.") from error
    if not _fits(base):
        raise ConfigError(
            f"Socket paths under {base} would have {_longest(base)} bytes, and {_LONGEST_SOCKET_PATH} is the system's "
            f"limit. Set {VARIABLE} to a shorter folder."
        )
    return base


def _is_private(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _fits(base: Path) -> bool:
    return _longest(base) <= _LONGEST_SOCKET_PATH


def _longest(base: Path) -> int:
    return len(os.fsencode(base)) + _LONGEST_NAME
