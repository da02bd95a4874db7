"""Packed weights, kept on disk from one start to the next and mapped instead of read and packed again.

One file holds all weights of one rank of one checkpoint, packed for one instruction set in one form. Its name is the
checkpoint's identity and a digest of the rest, the checkpoint told by its files' names, sizes, inodes and times of
change: reading them would take longer than packing, and any doubt (a copied folder, a restored backup) means to pack
once more, never to use the wrong weights. The file is written in the background after loading; a failure is logged and
changes nothing.
"""

import hashlib
import logging
import os
import threading
import time
from pathlib import Path

from ...kernels.cpu.weights.packed import NativeWeight
from ...protocol.files.cache_folder import cache_folder
from ...protocol.files.own_folder import own_folder
from .kept_files import WHAT, NoRoom, open_kept, remove_kept, write_kept
from .packed_file import DamagedFile, Stopped, packed_size, read_weights, write_weights
from .weight_files import identity

_LOG = logging.getLogger(__name__)
_FORMAT = "1"  # a new number makes every file anew
_NICENESS = 10  # of the thread that writes, which also rests as long as it works


class PackedCache:
    """The weights of one rank."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, NativeWeight] = {}
        self._made: dict[str, NativeWeight] = {}
        self._file: int | None = None  # open, and so locked, as long as its weights are in use
        self._is_stopped = threading.Event()
        self._writer: threading.Thread | None = None
        self._open()

    @classmethod
    def of(cls, model_folder: Path, *apart: object) -> "PackedCache":
        """`apart` tells these weights from others of the model: the kernels' digest, the form, rank and ranks."""
        parts = (_FORMAT, *map(repr, apart))
        key = hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
        return cls(own_folder(cache_folder(), "weights", WHAT) / f"{identity(model_folder)}{key}")

    def weight(self, key: str) -> NativeWeight | None:
        """What was packed before. It lies in the file's own memory, which every process shares that maps it."""
        return self._kept.get(key)

    @property
    def mapped_bytes(self) -> int:
        """Of weights that lie in the file."""
        return sum(weight.nbytes for weight in self._kept.values())

    def add(self, key: str, made: NativeWeight) -> NativeWeight:
        """Keep what was packed now."""
        self._made[key] = made
        return made

    def write_in_background(self) -> None:
        """Once the model is loaded: keep what was added for the next start."""
        if self._made:
            self._writer = threading.Thread(target=self._write, name="keep-weights", daemon=True)
            self._writer.start()

    def wait(self) -> None:
        """Until the file is written."""
        if self._writer is not None:
            self._writer.join()

    def close(self) -> None:
        """Write no further. What was mapped stays in use as long as its weights are."""
        self._is_stopped.set()
        if self._writer is not None:
            self._writer.join(timeout=0.2)

    def _open(self) -> None:
        try:
            self._file = open_kept(self.path)
            if self._file is not None:
                self._kept = read_weights(self._file)
        except (DamagedFile, OSError, ValueError) as error:
            _LOG.warning("The packed weights kept in %s are not used, %s; they are made again", self.path, error)
            remove_kept(self.path)
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _write(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # this thread's alone on Linux
        start = time.monotonic()
        weights = self._kept | self._made
        try:
            size = packed_size(weights)
            if write_kept(self.path, size, lambda file: write_weights(file, weights, self._pause_after())):
                seconds = time.monotonic() - start
                _LOG.info("Packed weights (%.2f GB) were kept in %s in %.1f s", size / 1e9, self.path, seconds)
        except (NoRoom, OSError) as error:
            _LOG.info("Packed weights are not kept for the next start: %s", error)
        except Stopped:
            _LOG.info("Packed weights are not kept for the next start: this one ended too soon")
        finally:
            self._made.clear()

    def _pause_after(self) -> "_Pause":
        return _Pause(self._is_stopped)


class _Pause:
    """Rests as long as was worked since the last rest."""

    def __init__(self, is_stopped: threading.Event) -> None:
        self._is_stopped = is_stopped
        self._since = time.monotonic()

    def __call__(self) -> None:
        if self._is_stopped.wait(time.monotonic() - self._since):
            raise Stopped
        self._since = time.monotonic()
