"""Downloads files of a model into the hub's cache, several at once, and resumes interrupted ones.

`transfer.py` receives the bytes, `contents.py` checks and keeps them. A download that makes next to no progress for
minutes is given up.
"""

import queue
import threading
import time

from ..model_names import HubName
from .cache import blob_path, snapshot_folder
from .contents import give_name, unfinished_content
from .progress import DownloadProgress
from .repository import HubFile, Listing
from .transfer import Transfer

_AT_ONCE = 4
_REFRESH_SECONDS = 0.5
# For all files together: less in that time is no slow line.
_LEAST_BYTES, _STALLED_SECONDS = 16 << 10, 300.0


class Stopped(Exception):
    """The download ended meanwhile, for another reason."""


class Stalled(OSError):
    """Nothing happens any more; the message is a clause that says so."""


def download(listing: Listing, files: list[HubFile], progress: DownloadProgress) -> None:
    """Download all files into the snapshot; raises the error of the first that failed."""
    waiting: queue.SimpleQueue[HubFile] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    life = _Life()
    for file in files:
        waiting.put(file)

    def work() -> None:
        while True:
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                _fetch(listing.model, listing.commit, file, progress, life)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

    # Not an executor's: the end of the process, also by Ctrl-C, would wait for those.
    for _ in range(min(_AT_ONCE, len(files))):
        threading.Thread(target=work, name="download", daemon=True).start()
    try:
        for _ in files:
            if (error := _next(ended, progress, life)) is not None:
                raise error
    finally:
        life.is_stopped.set()


class _Life:
    """Signs of life from all threads of a download, and whether they should end."""

    def __init__(self) -> None:
        self.is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._num_bytes = 0
        self._since = time.monotonic()

    def beat(self, num_bytes: int) -> None:
        if self.is_stopped.is_set():
            raise Stopped
        with self._lock:
            self._num_bytes += num_bytes
            if self._num_bytes >= _LEAST_BYTES:
                self._num_bytes, self._since = 0, time.monotonic()

    def wait(self, seconds: float) -> None:
        if self.is_stopped.wait(seconds):
            raise Stopped

    def require(self) -> None:
        if time.monotonic() - self._since > _STALLED_SECONDS:
            raise Stalled(f"next to nothing has arrived for {_STALLED_SECONDS:.0f} s")


def _next(
    ended: "queue.SimpleQueue[BaseException | None]", progress: DownloadProgress, life: _Life
) -> BaseException | None:
    """Wait for the next file's outcome; meanwhile the progress display keeps moving."""
    while True:
        try:
            return ended.get(timeout=_REFRESH_SECONDS)
        except queue.Empty:
            progress.refresh()
            life.require()


def _fetch(model: HubName, commit: str, file: HubFile, progress: DownloadProgress, life: _Life) -> None:
    """Download one file from the hub into the cache."""

    def received(num_bytes: int, num_new: int) -> None:
        life.beat(num_bytes)
        progress.add(num_new)

    life.wait(0)
    transfer = Transfer(model, commit, file, received, life.wait)
    if not file.digest:
        transfer.refuse()
    blob = blob_path(model.id, file.digest)
    with unfinished_content(blob, file, life.beat) as descriptor:
        if descriptor is not None:
            transfer.run(descriptor)
    give_name(blob, snapshot_folder(model, commit) / file.name)
