"""Writes and checks the contents of files in a model's `blobs` folder.

A content is collected in an unfinished file that its writer locks, and becomes a blob once it has the digest that the
hub lists. Either path may hold anything: a pipe, a link, another user's file. Only this user's regular file without a
second name is written to; anything else is removed.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .cache import UNFINISHED, is_resumable
from .repository import HubFile

# Between two checks whether another process has released a file.
_LOOK_SECONDS = 0.1
_PIECE_BYTES = 1 << 20
_SHA256_DIGITS = 64
# Called with the number of bytes just processed; raises if the download has ended meanwhile.
Heartbeat = Callable[[int], None]


class Damaged(OSError):
    """The content isn't the one that the hub lists, and was removed; the message is a clause that says why."""


def has_size(path: Path, file: HubFile) -> bool:
    """Whether the path is a regular file of the listed size."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == file.size


def has_content(path: Path, file: HubFile, beat: Heartbeat = lambda num_bytes: None) -> bool:
    """Whether the file has exactly the listed content."""
    if not has_size(path, file):
        return False
    if len(file.digest) == _SHA256_DIGITS:
        digest = hashlib.sha256()
    else:  # git's hash of a content
        digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    with open(path, "rb") as content:
        while piece := content.read(_PIECE_BYTES):
            digest.update(piece)
            beat(len(piece))
    return digest.hexdigest() == file.digest


def remove_damaged(blob: Path, name: Path, file: HubFile) -> None:
    """Remove a file whose content, or whose name in the snapshot, isn't what the hub lists."""
    if not file.digest:
        return
    if os.path.lexists(blob) and not has_content(blob, file):
        blob.unlink()
    is_linked = name.is_symlink() and has_size(blob, file) and name.resolve() == blob.resolve()
    if os.path.lexists(name) and not is_linked and not has_content(name, file):
        name.unlink()


@contextmanager
def unfinished_content(blob: Path, file: HubFile, beat: Heartbeat) -> Iterator[int | None]:
    """A descriptor of the unfinished file, locked until the block ends; then the file becomes the blob.

    None if another process has finished it meanwhile.
    """
    path = blob.with_name(blob.name + UNFINISHED)
    blob.parent.mkdir(parents=True, exist_ok=True)
    is_removed = False
    while not has_size(blob, file):
        descriptor = _open(path)
        try:
            _lock(descriptor, beat)
            if not _is_at(path, descriptor):  # its previous owner has finished or removed it
                continue
            if has_size(blob, file):
                path.unlink()
                break
            if not is_resumable(os.fstat(descriptor)):
                if is_removed:  # new files here belong to another user
                    raise PermissionError(errno.EPERM, "files here belong to another user", os.fspath(path))
                path.unlink()
                is_removed = True
                continue
            if os.fstat(descriptor).st_size > file.size:
                os.truncate(descriptor, 0)
            yield descriptor
            _finish(path, blob, descriptor, file, beat)
            return
        except Damaged:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
    yield None


def _open(path: Path) -> int:
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o644)


def _lock(descriptor: int, beat: Heartbeat) -> None:
    """Wait for another process that downloads the file; its progress counts as ours."""
    size = os.fstat(descriptor).st_size
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            before, size = size, os.fstat(descriptor).st_size
            beat(max(0, size - before))
            time.sleep(_LOOK_SECONDS)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _finish(path: Path, blob: Path, descriptor: int, file: HubFile, beat: Heartbeat) -> None:
    """Rename the file to its blob's name, once its content is right and on the disk."""
    if not has_content(path, file, beat):
        kind = "SHA-256" if len(file.digest) == _SHA256_DIGITS else "digest"
        raise Damaged(f"the download of {file.name} has another {kind} than the hub lists")
    os.fsync(descriptor)
    os.replace(path, blob)


def give_name(blob: Path, name: Path) -> None:
    """Link a blob into the snapshot, replacing whatever is there; moved if this file system has no links."""
    if name.is_symlink() and name.exists() and name.samefile(blob):
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    link = name.with_name(f".{secrets.token_hex(8)}")
    try:
        link.symlink_to(os.path.relpath(blob, name.parent))
    except PermissionError:  # raised also by file systems without links
        os.replace(blob, name)
        return
    try:
        os.replace(link, name)
    except OSError:
        link.unlink()
        raise
