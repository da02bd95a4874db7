"""The files of all clients on the disk: content and description of each, its owner, and how much an owner may keep.

The input of a batch stays on the disk until the batch ends, though its file is deleted, and counts as long; so does the
journal of its answers.

A file is there once its description is: that is written last and removed first, so a crash leaves nothing half. Ids
begin with the time of creation, which orders files, also behind one that has been deleted. Methods with disk work are
called in threads; the index and the quotas belong to the event loop.
"""

import errno
import logging
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ....protocol.errors import PenstockError
from ....protocol.fields.rules import shown
from ....protocol.files.formats import STORED_FILE
from ...file_replacement import PARTIAL, sync_folder, write_whole
from ..answers.errors import ApiError
from ..options import HttpOptions
from ..schemas.files import FileObject, FileQuery

# Files without a life of their own go after OpenAI's 30 days, and with them those of keys that are no longer known.
LIFE_SECONDS = 30 * 86400
# The least that a file counts, so that there is a bound for small ones, too.
_LEAST_BYTES = 64 << 10
_DESCRIPTION, _CONTENT, _UNFINISHED = ".json", ".content", ".unfinished"
_log = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoredFile(msgspec.Struct):
    owner: str  # a digest of the API key; empty without keys
    shown: FileObject
    format: int = STORED_FILE.version


def new_id(prefix: str) -> str:
    """An id that sorts by time."""
    return f"{prefix}{time.time_ns() // 1000:014x}{secrets.token_hex(5)}"


def check_after(after: str | None, prefix: str) -> None:
    """Raise for an id that no object can have had, which is all that is known of one that has been deleted."""
    if after is not None and not re.fullmatch(f"{prefix}[0-9a-f]{{24}}", after):
        sentence = f"after={shown(after)}: must be the last id of the page before, which begins with {prefix}"
        raise ApiError(400, f"{sentence}.", param="after")


def counted(num_bytes: int) -> int:
    return max(num_bytes, _LEAST_BYTES)


class _Content:
    """A content that counts until its last holder lets it go: its file, or a batch."""

    def __init__(self, owner: str, num_bytes: int) -> None:
        self.owner = owner
        self.num_bytes = num_bytes
        self.num_holders = 0


class FileStore:
    def __init__(self, folder: Path, options: HttpOptions, clock: Callable[[], float] = time.time) -> None:
        """Reads the descriptions, and removes what a crash has left."""
        self.folder = folder
        self.options = options
        self.clock = clock
        self._files: dict[str, StoredFile] = {}
        self._contents: dict[str, _Content] = {}  # by file, also one that has been deleted
        self._journals: dict[str, int] = {}  # their sizes when they were counted, by batch
        self.used: Counter[str] = Counter()  # counted bytes by owner, with those that are arriving
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if path.suffix == _DESCRIPTION:
                with suppress(OSError):
                    self._read(path)
        for path in folder.iterdir():
            is_left = path.suffix == _CONTENT and not path.with_suffix(_DESCRIPTION).exists()
            if path.suffix in (_UNFINISHED, PARTIAL) or is_left:
                path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        """Enter a file by its description. What another version keeps here is left alone."""
        try:
            file = msgspec.json.decode(path.read_bytes(), type=StoredFile)
        except msgspec.MsgspecError:
            _log.warning("%s has an unknown form, and is left alone.", path)
            return
        if file.format == STORED_FILE.version:
            self._enter(file)
        else:
            _log.warning("%s: %s", path, STORED_FILE.refusal(file.format))

    def _enter(self, file: StoredFile) -> None:
        if file.shown.id not in self._files:
            self.hold(file.shown.id, file.owner, file.shown.bytes)
        self._files[file.shown.id] = file

    # --- looking -----------------------------------------------------------------------------------------------------

    def find(self, file_id: str, owner: str) -> StoredFile:
        """The owner's file; the error is the same for another owner's as for an unknown one."""
        file = self._files.get(file_id)
        if file is None or file.owner != owner or file.shown.expires_at <= self.clock():
            raise ApiError(404, f"There is no file {file_id!r} here; it may have expired. See /v1/files.")
        return file

    def listing(self, owner: str, query: FileQuery) -> tuple[list[FileObject], bool]:
        """A page of the owner's files, and whether more follow."""
        now, is_ascending = self.clock(), query.order == "asc"
        found = [
            file.shown
            for file in self._files.values()
            if file.owner == owner and file.shown.expires_at > now and query.purpose in (None, file.shown.purpose)
        ]
        return page(found, query.after, query.limit, is_ascending=is_ascending)

    def content(self, file_id: str) -> Path:
        return self.folder / (file_id + _CONTENT)

    def opened(self, file_id: str) -> BinaryIO:
        return open(self.content(file_id), "rb", buffering=0)

    # --- changing ----------------------------------------------------------------------------------------------------

    def check_quota(self, owner: str) -> None:
        if self.used[owner] > self.options.max_stored_bytes:
            raise ApiError(
                400,
                f"Your files would take {self.used[owner]:,} bytes, and {self.options.max_stored_bytes:,} are the most "
                "(option max_stored_bytes). Delete some first; the input of a batch and the journal of its answers "
                "count until the batch ends.",
                code="storage_quota_exceeded",
            )

    def hold(self, file_id: str, owner: str, num_bytes: int) -> None:
        """Count the content of a file, once for all of its holders, until all have let it go."""
        if (found := self._contents.get(file_id)) is None:
            found = self._contents[file_id] = _Content(owner, counted(num_bytes))
            self.used[owner] += found.num_bytes
        found.num_holders += 1

    def let_go(self, file_id: str) -> None:
        found = self._contents[file_id]
        found.num_holders -= 1
        if not found.num_holders:
            del self._contents[file_id]
            self.used[found.owner] -= found.num_bytes

    def count_journal(self, batch_id: str, owner: str, num_bytes: int) -> None:
        """Count a journal by its size, which grows; 0 if it is there no more."""
        self.used[owner] += num_bytes - self._journals.get(batch_id, 0)
        self._journals[batch_id] = num_bytes
        if not num_bytes:
            del self._journals[batch_id]

    def keep(self, path: Path, file: StoredFile) -> None:
        """Move a file that is on the disk into the store. Only a whole file is ever seen."""
        try:
            os.chmod(path, 0o600)
            os.replace(path, self.content(file.shown.id))
            write_whole(self.folder / (file.shown.id + _DESCRIPTION), msgspec.json.encode(file))
        except OSError as error:
            raise disk_error(error) from error

    def show(self, file: StoredFile) -> None:
        """From now on it is found."""
        self._enter(file)

    def forget(self, file: StoredFile) -> None:
        """From now on it isn't found."""
        if self._files.pop(file.shown.id, None) is not None:
            self.let_go(file.shown.id)

    def remove(self, file: StoredFile) -> None:
        """Remove it from the disk."""
        for end in (_DESCRIPTION, _CONTENT):
            (self.folder / (file.shown.id + end)).unlink(missing_ok=True)
        sync_folder(self.folder)

    def expired(self) -> list[StoredFile]:
        now = self.clock()
        return [file for file in self._files.values() if file.shown.expires_at <= now]

    def unfinished(self) -> Path:
        return self.folder / (secrets.token_hex(12) + _UNFINISHED)


def page(found: list[Any], after: str | None, limit: int, *, is_ascending: bool) -> tuple[list[Any], bool]:
    """The objects behind `after`, which needs no longer be there, as far as the limit goes."""
    ordered = sorted(found, key=lambda each: each.id, reverse=not is_ascending)
    if after is not None:
        ordered = [each for each in ordered if (each.id > after if is_ascending else each.id < after)]
    return ordered[:limit], len(ordered) > limit


def disk_error(error: OSError) -> Exception:
    if error.errno in _FULL:
        return ApiError(507, "The server's disk is full, so the file could not be kept. Try again later.")
    return PenstockError(f"A client's file cannot be written: {error.strerror}.")


def pieces_of(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """The content of an open file, a piece at a time; it stays readable if the file is deleted meanwhile."""
    with file:
        while piece := file.read(num_bytes):
            yield piece
