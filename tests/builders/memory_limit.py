"""A control group with a limit of memory, of either version, where this machine lets one be made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

# Where groups are made, and the file that takes the limit.
_VERSIONS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))


@contextmanager
def memory_limit(nbytes: int) -> Iterator[Path]:
    """The file that takes the ids of processes, all of which end before this does. Skips where there can be none."""
    group = _made(nbytes)
    if group is None:
        pytest.skip("no control group with a limit of memory can be made here")
    try:
        yield group / "cgroup.procs"
    finally:
        for _ in range(100):  # a process that has ended is in it for a moment yet
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def _made(nbytes: int) -> Path | None:
    for root, limit in _VERSIONS:
        group = root / f"penstock-{uuid4().hex[:12]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(nbytes))
            return group
        except OSError:  # of the second version without this controller
            group.rmdir()
    return None
