"""Packed weights, kept on disk from one start to the next and mapped instead of read and packed again.

One file holds all weights of one rank of one checkpoint, packed for one instruction set in one form. Its name is the
checkpoint's identity and a digest of the rest. A checkpoint is identified by its files' names, sizes, inodes and times
of change: reading them would take longer than packing, and in case of doubt (a copied folder, a restored backup) the
weights are packed again. Each weight is verified before use, and repacked if it is damaged.
The file is written in the background after loading; a failure is logged and changes nothing. Weights that don't
fit into memory are written through while they are packed (`write_through.py`).
"""

import hashlib
import logging
import os
import threading
import time
from pathlib import Path

from ....kernels.cpu.weights.packed import NativeWeight
from ....protocol.files.cache_folder import cache_folder
from ....protocol.files.formats import PACKED_WEIGHTS
from ....protocol.files.own_folder import own_folder
from ....protocol.files.sizes import exact_size
from ..files.weight_files import identity
from .kept_files import LARGEST_SHARE, WHAT, NoRoom, most_bytes, open_kept, remove_kept, write_kept
from .packed_file import DamagedFile, KeptWeights, Stopped, packed_size, write_weights
from .write_through import WrittenThrough

_LOG = logging.getLogger(__name__)
_NICENESS = 10  # of the writing thread, which also rests as long as it works


class NotKept(Exception):
    """Packed weights of this model are not kept; the message gives the reason."""


class PackedCache:
    """The weights of one rank."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: KeptWeights | None = None
        self._damaged: set[str] = set()  # names of damaged weights
        self._made: dict[str, NativeWeight] = {}
        self._mapped_bytes: dict[str, int] = {}  # by weight that is used from the file
        self._through: WrittenThrough | None = None
        self._file: int | None = None  # open, and therefore locked, as long as its weights are in use
        self._is_stopped = threading.Event()
        self._writer: threading.Thread | None = None
        self._open()

    @classmethod
    def of(cls, model_folder: Path, *apart: object) -> "PackedCache":
        """`apart` distinguishes these weights from others of the model: kernels' digest, form, rank and ranks."""
        parts = (str(PACKED_WEIGHTS.version), *map(repr, apart))
        key = hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
        return cls(own_folder(cache_folder(), "weights", WHAT) / f"{identity(model_folder)}{key}")

    def weight(self, key: str) -> NativeWeight | None:
        """A weight packed earlier, in the file's pages, which all processes that map it share."""
        if (found := self._intact(key)) is not None:
            self._mapped_bytes[key] = found.nbytes
        return found

    @property
    def is_kept(self) -> bool:
        """Whether an earlier start has left weights."""
        return self._kept is not None

    @property
    def mapped_bytes(self) -> int:
        """Bytes of weights that are used from the file."""
        return sum(self._mapped_bytes.values())

    def lack(self, nbytes: int) -> str:
        """The reason why so many bytes can't be written through; empty if they can."""
        try:
            most = most_bytes(self.path.parent, LARGEST_SHARE)
        except OSError as error:
            return f"{self.path.parent} can't be written to ({error.strerror})"
        return "" if nbytes <= most else f"of the disk of {self.path.parent} they may take {exact_size(most)}"

    def write_through(self, nbytes: int) -> None:
        """Write packed weights to the file at once and use them from there, about so many bytes in total.

        Nothing is written if an earlier start has left them all, as an interrupted start may have for some ranks.
        """
        if self.is_kept:
            return
        self._through = WrittenThrough.begin(self.path, nbytes)
        if self._through is None:  # another process has completed it meanwhile
            self._open()
            if not self.is_kept:
                raise NotKept(f"another process began {self.path} and has not completed it; start once more")

    def add(self, key: str, made: NativeWeight) -> NativeWeight:
        """Keep a newly packed weight; return the weight to use instead."""
        if self._through is not None:
            self._mapped_bytes[key] = made.nbytes
            return self._through.add(key, made)
        if (repaired := self._repaired(key, made)) is not None:
            self._mapped_bytes[key] = repaired.nbytes
            return repaired
        self._made[key] = made
        return made

    def complete(self) -> None:
        """Mark all weights as written through, for the next start."""
        if self._through is not None:
            self._through.complete()
        if self._damaged:
            _LOG.warning(
                "%d of the packed weights kept in %s were damaged, and were packed anew. If this happens again, check "
                "the disk and the memory of this machine",
                *(len(self._damaged), self.path),
            )

    def write_in_background(self) -> None:
        """Write the added weights for the next start, once the model is loaded."""
        if self._made:
            self._writer = threading.Thread(target=self._write, name="keep-weights", daemon=True)
            self._writer.start()

    def wait(self) -> None:
        """Wait until the file is written."""
        if self._writer is not None:
            self._writer.join()

    def close(self) -> None:
        """Stop writing. Mapped weights stay usable."""
        self._is_stopped.set()
        if self._through is not None:
            self._through.close()
        if self._writer is not None:
            self._writer.join(timeout=0.2)

    def _open(self) -> None:
        try:
            self._file = open_kept(self.path)
            if self._file is not None:
                self._kept = KeptWeights(self._file, self.path.name)
        except (DamagedFile, OSError, ValueError) as error:
            _LOG.warning("The packed weights kept in %s are not used, %s; they are made again", self.path, error)
            remove_kept(self.path)
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _intact(self, key: str) -> NativeWeight | None:
        """The kept weight of this name; None if there is none, or a damaged one."""
        if self._kept is None or key not in self._kept:
            return None
        try:
            return self._kept.weight(key)
        except DamagedFile:
            self._damaged.add(key)
            return None

    def _repaired(self, key: str, made: NativeWeight) -> NativeWeight | None:
        """Rewrite a damaged weight in the file; None if that fails or the weight isn't damaged."""
        if self._kept is None or key not in self._damaged:
            return None
        try:
            return self._kept.repair(key, made)
        except (DamagedFile, OSError) as error:
            _LOG.info("The whole file is written anew: %s", error)
            return None

    def _write(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # only this thread, on Linux
        start = time.monotonic()
        kept = {key: weight for key in self._kept or () if (weight := self._intact(key)) is not None}
        weights, name = kept | self._made, self.path.name
        try:
            size = packed_size(weights)
            if write_kept(self.path, size, lambda file: write_weights(file, name, weights, self._pause_after())):
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
    """Rests as long as the work since the last rest took."""

    def __init__(self, is_stopped: threading.Event) -> None:
        self._is_stopped = is_stopped
        self._since = time.monotonic()

    def __call__(self) -> None:
        if self._is_stopped.wait(time.monotonic() - self._since):
            raise Stopped
        self._since = time.monotonic()
