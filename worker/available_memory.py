"""How much memory this process may still take on this machine, and what other trees have set aside of it.

What is free is the smaller of the kernel's own estimate and what the limits of the control groups leave. KV memory is
touched long after it was planned, so a plan also leaves a note of what it has not touched yet; the notes are read and
written under one lock, and a note dies with its process. Knows nothing of models.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..protocol.runtime_directory import runtime_base

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that can be taken before something must give way."""
    return min([_kernel_estimate(proc), *_left_by_limits(proc, cgroups)])


def _kernel_estimate(proc: Path) -> int:
    lines = (proc / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _left_by_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """For every group that this process is in and that has a limit: what the limit leaves."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = (cgroups, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = (cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        root, limit, usage, reclaimable = names
        group = root / path.lstrip("/")
        # In a container the path may be the host's; then only the root is there to be read.
        for folder in [group, *group.parents]:
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError, StopIteration):
                    yield _left(folder, limit, usage, reclaimable)


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> int:
    """Raises ValueError where there is no limit ("max"). File pages that nobody uses count as free."""
    most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
    statistics = (folder / "memory.stat").read_text().splitlines()
    return most - used + next(int(line.split()[1]) for line in statistics if line.split()[0] == reclaimable)


class Reservation:
    """This process's note of memory that it has planned for and not touched yet."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or runtime_base() / "memory"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._note = None

    @contextmanager
    def turn(self) -> Iterator[int]:
        """While nobody else plans: the bytes that others have set aside."""
        with open(self.folder / "lock", "w") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            yield sum(_noted(note) for note in self.folder.glob("*.bytes"))

    def hold(self, number: int) -> None:
        """Set aside that many bytes, instead of what was set aside before."""
        if self._note is None:
            self._note = open(self.folder / f"{os.getpid()}-{id(self)}.bytes", "w")
            fcntl.flock(self._note, fcntl.LOCK_EX)
        # A line of one width, so that a reader never sees half of it.
        os.pwrite(self._note.fileno(), b"%20d\n" % number, 0)

    def release(self) -> None:
        if self._note is not None:
            Path(self._note.name).unlink(missing_ok=True)
            self._note.close()
            self._note = None


def _noted(path: Path) -> int:
    """The bytes in a note; a note that nobody holds any more is swept away and counts nothing."""
    with suppress(OSError, ValueError), open(path, "r+") as note:
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(note.read() or 0)
        path.unlink(missing_ok=True)
    return 0
