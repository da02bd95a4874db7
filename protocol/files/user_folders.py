"""Chooses folders for this user's files: the home, the temporary folder, and folders named by environment variables.

A folder is used if it is writable and belongs to this user: root, who can write anywhere, keeps nothing in another
user's folders (as with `sudo -E`, which keeps HOME and the like). If none of the usual folders can be used, the
temporary folder is. In each of them, only our own subfolder is written to.
"""

import errno
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError
from .own_folder import own_folder

_NAME, _WHAT = "penstock", "folder"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FolderKind(NamedTuple):
    """One kind of files: the variable that names their folder, and the default folder."""

    variable: str
    standard: str  # the variable that names such folders for all programs; "" for none
    under_home: str


class UserFolder(NamedTuple):
    folder: Path  # our own
    passed_over: str = ""  # the folder that cannot be used, if this is the temporary one


def place_for(kind: FolderKind) -> UserFolder:
    """The folder; raises ConfigError if the named one cannot be used, OSError if no disk can be written."""
    return UserFolder(named_by(kind.variable)) if os.environ.get(kind.variable) else usual_place(kind)


def usual_place(kind: FolderKind) -> UserFolder:
    """The folder if no variable names another; raises OSError."""
    refused = ""
    for parent in _usual(kind):
        try:
            return UserFolder(usable(parent))
        except OSError as error:
            refused = refused or f"{parent} cannot be used ({reason(error)})"
    return UserFolder(temporary(), refused or f"there is no home folder (HOME={os.environ.get('HOME', '')})")


def _usual(kind: FolderKind) -> Iterator[Path]:
    if os.path.isabs(standard := os.environ.get(kind.standard, "")):
        yield Path(standard)
    yield from (home / kind.under_home for home in homes())


def named_by(variable: str) -> Path:
    """Our own folder in the one named by the variable. Raises OSError, not ConfigError, if its disk is full."""
    try:
        return usable(expanded(os.environ[variable]))
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise ConfigError(
            f"{variable}={os.environ[variable]} cannot be used: {reason(error)}. Set {variable} to a folder of this "
            "user's that can be written."
        ) from error


def expanded(name: str) -> Path:
    """The absolute path, with ~ expanded; raises OSError if it needs a working folder or home that doesn't exist."""
    found = os.path.expanduser(name)
    if found.startswith("~"):
        raise FileNotFoundError(errno.ENOENT, "there is no such home folder", name)
    return Path(os.path.abspath(found))


def usable(parent: Path, name: str = _NAME) -> Path:
    """Our own folder in `parent`; raises OSError if it cannot be made or written."""
    nearest = next(folder for folder in (parent, *parent.parents) if folder.exists())
    if is_anothers(nearest):
        raise PermissionError(errno.EPERM, f"user {nearest.stat().st_uid} owns it, and this is root", str(nearest))
    folder = own_folder(parent, name, _WHAT)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


def temporary(is_fit: Callable[[Path], bool] = lambda folder: True) -> Path:
    """Our own folder for this user in the first temporary folder that can be used."""
    refused = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    for parent in _temporary_folders():
        try:
            folder = usable(parent, f"{_NAME}-{os.geteuid()}")
            if is_fit(folder):
                return folder
        except OSError as error:
            refused = error
    raise refused


def _temporary_folders() -> Iterator[Path]:
    """Not `tempfile.gettempdir()`, which takes the working folder if nothing else can be written."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*named, "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isabs(folder) and os.path.isdir(folder):
            yield Path(folder)


def homes() -> Iterator[Path]:
    """$HOME, then the home in the user database, if they are set."""
    found = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a user without an entry
        found.append(pwd.getpwuid(os.geteuid()).pw_dir)
    for home in dict.fromkeys(found):
        if os.path.isabs(home) and os.path.isdir(home):
            yield Path(home)


def is_home_usable() -> bool:
    """Whether $HOME is writable and belongs to this user, as libraries assume."""
    home = os.environ.get("HOME", "")
    return os.path.isabs(home) and os.access(home, os.W_OK | os.X_OK) and not is_anothers(Path(home))


def is_anothers(folder: Path) -> bool:
    """Whether root would write to another user's private folder; False for other users."""
    status = folder.stat()
    return os.geteuid() == 0 and status.st_uid != 0 and not status.st_mode & stat.S_IWOTH


def reason(error: OSError) -> str:
    """The error in the system's words, or in those of the code that raised it."""
    words = error.strerror or str(error)
    if error.errno == errno.EFBIG:
        words += " for its disk or for `ulimit -f`"
    return words[:1].lower() + words[1:]
