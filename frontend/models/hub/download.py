"""Downloads files of a model into the hub's cache, several at once, and resumes those that were broken off.

What is unfinished lies beside the blobs and is locked by who writes it. The library fetches the bytes, and knows where
from and with which token; but it forgets what it has of a file that breaks off. A finished blob is linked into the
snapshot here: the library would ask the hub for the blob's name once more, and believe whatever it says then.
"""

import fcntl
import hashlib
import io
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..model_names import HubName
from .cache import UNFINISHED, repository_folder, snapshot_folder
from .library import most_bytes_over_http, quiet_small_pieces
from .progress import DownloadProgress
from .repository import HubFile, Listing, file_name_of, hub_errors, is_broken_connection

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_AT_ONCE = 4
# Between two looks whether another process has let go of a file.
_LOOK_SECONDS = 0.1
_REFRESH_SECONDS = 0.5
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Stopped(Exception):
    """The download ended meanwhile, for another reason."""


class Damaged(OSError):
    """What came isn't what the hub has, and was removed; the message is a clause that says why."""


class _TooLong(OSError):
    """More comes than the file has."""


def download(listing: Listing, files: list[HubFile], progress: DownloadProgress) -> None:
    """Returns when all are in the snapshot; raises what went wrong with the first that failed."""
    waiting: queue.SimpleQueue[HubFile] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    is_stopped = threading.Event()
    for file in files:
        waiting.put(file)

    def work() -> None:
        while True:
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                _Fetch(listing.model, listing.commit, file, progress, is_stopped).run()
                ended.put(None)
            except BaseException as error:
                ended.put(error)

    with quiet_small_pieces():
        # Not an executor's: those would be waited for at the end of the process, also by who presses Ctrl-C.
        for _ in range(min(_AT_ONCE, len(files))):
            threading.Thread(target=work, name="download", daemon=True).start()
        try:
            for _ in files:
                if (error := _next(ended, progress)) is not None:
                    raise error
        finally:
            is_stopped.set()


def _next(ended: "queue.SimpleQueue[BaseException | None]", progress: DownloadProgress) -> BaseException | None:
    """How the next file ended. Meanwhile the progress display shows that time passes."""
    while True:
        try:
            return ended.get(timeout=_REFRESH_SECONDS)
        except queue.Empty:
            progress.refresh()


class _Fetch:
    """One file, from the hub into the cache."""

    def __init__(
        self, model: HubName, commit: str, file: HubFile, progress: DownloadProgress, is_stopped: threading.Event
    ) -> None:
        self.model, self.commit, self.file = model, commit, file
        self._progress = progress
        self._is_stopped = is_stopped

    def run(self) -> None:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

        self._check()
        url = hf_hub_url(self.model.id, self.file.name, revision=self.commit)
        found = get_hf_file_metadata(url)
        if found.etag and found.commit_hash:
            blob = repository_folder(self.model.id) / "blobs" / file_name_of(found.etag, "content")
            if not blob.exists():
                self._fetch(blob, found.location, found.size, is_same_host=_host(url) == _host(found.location))
            if blob.exists() and _is_linked(blob, snapshot_folder(self.model, self.commit) / self.file.name):
                return
        hf_hub_download(self.model.id, self.file.name, revision=self.commit)

    def _fetch(self, blob: Path, location: str, num_bytes: int | None, *, is_same_host: bool) -> None:
        from huggingface_hub.utils import build_hf_headers

        if num_bytes is not None and num_bytes > most_bytes_over_http():
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        # Compressed, a part of the content couldn't be asked for.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if not is_same_host:  # an address that is signed: it needs no token, and is not trusted with it
            headers.pop("authorization", None)
        unfinished = blob.with_name(blob.name + UNFINISHED)
        with _locked(unfinished, blob, self._check) as descriptor:
            if descriptor is None:  # another process was faster
                return
            have = os.fstat(descriptor).st_size
            if num_bytes is not None and have > num_bytes:
                os.truncate(descriptor, 0)
                self._progress.add(-have)
                have = 0
            try:
                if have != num_bytes:
                    self._fetch_rest(descriptor, location, headers, num_bytes)
                self._check_content(unfinished, blob.name)
            except Damaged:
                unfinished.unlink()
                raise
            os.replace(unfinished, blob)

    def _fetch_rest(self, descriptor: int, location: str, headers: dict[str, str], num_bytes: int | None) -> None:
        """A connection that breaks is made again as long as something comes through it."""
        from huggingface_hub.file_download import http_get

        while True:
            have = os.fstat(descriptor).st_size
            try:
                with io.BufferedWriter(_Counted(descriptor, num_bytes, self._counted)) as file:
                    http_get(location, file, resume_size=have, headers=headers, expected_size=num_bytes)
                return
            except _TooLong:
                raise Damaged(f"of {self.file.name} came more than the {num_bytes:,} bytes that it has") from None
            except hub_errors() as error:
                if not is_broken_connection(error) or os.fstat(descriptor).st_size <= have:
                    raise

    def _check_content(self, path: Path, digest: str) -> None:
        """A proxy may answer in the hub's place, and a machine lose its power between two tries."""
        if not _SHA256.fullmatch(digest):
            return
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Damaged(f"what came of {self.file.name} has another SHA-256 than the hub's")

    def _counted(self, num_bytes: int) -> None:
        self._check()
        self._progress.add(num_bytes)

    def _check(self) -> None:
        if self._is_stopped.is_set():
            raise Stopped


class _Counted(io.FileIO):
    """A file that is appended to, tells how much was written, and takes no more than `most` bytes."""

    def __init__(self, descriptor: int, most: int | None, count: Callable[[int], None]) -> None:
        super().__init__(descriptor, "ab", closefd=False)
        self._most = most
        self._count = count

    def write(self, content: "ReadableBuffer") -> int:
        if self._most is not None and os.fstat(self.fileno()).st_size + memoryview(content).nbytes > self._most:
            raise _TooLong
        written = super().write(content)
        self._count(written or 0)
        return written


def _is_linked(blob: Path, name: Path) -> bool:
    """Gives a blob its name; False where that is taken, or this file system has no links: the library knows more."""
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        name.symlink_to(os.path.relpath(blob, name.parent))
    except OSError:
        return False
    return True


@contextmanager
def _locked(path: Path, blob: Path, check: Callable[[], None]) -> Iterator[int | None]:
    """The unfinished file, nobody else's until the block ends; None where its blob has appeared meanwhile."""
    while not blob.exists():
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            while not _take(descriptor):
                check()
                time.sleep(_LOOK_SECONDS)
            if not _is_at(path, descriptor):  # whoever held it has finished, or removed it
                continue
            if blob.exists():
                path.unlink()
                break
            yield descriptor
            return
        finally:
            os.close(descriptor)
    yield None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _host(address: str) -> str:
    return urlsplit(address).netloc
