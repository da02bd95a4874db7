"""Measures how much memory this process may still take on this machine, and how much of it other trees have reserved.

Free memory is the smaller of the kernel's own estimate and the remainder of the control groups' limits. KV memory is
touched long after it was planned, so each rank writes a note of its untouched bytes. Notes are read and written under
one lock, and a note is void when its process ends. A GPU's memory is taken at once, so a lock is enough there.
"""

import fcntl
import glob
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ....protocol.files.own_folder import lock_file

_LOG = logging.getLogger(__name__)
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that can be taken without displacing anything."""
    return min([_kernel_estimate(proc), *_left_by_limits(proc, cgroups)])


def _kernel_estimate(proc: Path) -> int:
    lines = (proc / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _left_by_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """The remainder of the limit of each control group that this process is in."""
    groups = proc / "self" / "cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = (cgroups, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            names = (cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        root, limit, usage, prefix = names
        group = root / path.lstrip("/")
        # In a container the path may be the host's; then only the root is there to be read.
        for folder in [group, *group.parents]:
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError):
                    yield _left(folder, limit, usage, prefix)


def _left(folder: Path, limit: str, usage: str, prefix: str) -> int:
    """The remainder of one limit; ValueError if there is none ("max"). Cached pages of files count as free."""
    most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
    statistics = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    files = (f"{prefix}inactive_file", f"{prefix}active_file")
    return most - used + sum(int(number) for name, number in statistics if name in files)


class Reservation:
    """This rank's note, in its tree's folder, of memory that it has planned and not touched yet."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._base = directory.parent
        self._note = open(directory / f"memory{rank}", "w")
        fcntl.flock(self._note, fcntl.LOCK_EX)

    @contextmanager
    def turn(self) -> Iterator[int]:
        """Hold the lock for planning; yield the bytes that other ranks and trees have reserved."""
        with os.fdopen(lock_file(self._base / "memory-lock"), "r+") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            # Unlike pathlib's, this glob passes over a tree's folder that is removed meanwhile.
            notes = (self._base / name for name in glob.iglob("t*/memory*", root_dir=self._base))
            yield sum(_reserved_bytes(note) for note in notes if str(note) != self._note.name)

    def hold(self, number: int) -> None:
        """Reserve that many bytes, replacing the earlier reservation."""
        # Fixed width, so that a reader never sees half a number.
        os.pwrite(self._note.fileno(), b"%20d" % number, 0)

    def release(self) -> None:
        self._note.close()


def _reserved_bytes(path: Path) -> int:
    """The bytes of a note that its owner still locks; 0 if nobody does."""
    with suppress(OSError), open(path) as note:
        try:
            fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(note.read() or 0)
    return 0


class CardLocks:
    """The locks of some GPUs, by names that are the same for every tree of this user.

    Memory that a tree has planned but not allocated looks free to others. So a tree holds the lock of each of its GPUs
    from the loading of its weights until all its memory is allocated, and two starting trees take turns. Rank 0 holds
    the locks for all ranks, always in the same order, so that no two trees wait for each other. A process that ends
    releases its locks.
    """

    def __init__(self, folder: Path, cards: Iterable[str]) -> None:
        self._files: list[IO[str]] = []
        for card in sorted(set(cards)):
            self._files.append(_locked(folder / f"card-{card}"))

    def release(self) -> None:
        while self._files:
            self._files.pop().close()


def _locked(path: Path) -> IO[str]:
    file = os.fdopen(lock_file(path), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOG.info("another tree is starting on this card; waiting until it has taken its memory")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file
