"""Reads what this machine has: processor, memory limit, graphics cards, compiler.

Each function reads one thing and returns it, or None where there is none. Imports no torch.
"""

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import PenstockError
from ....protocol.processes.process import run_to_end, start_process
from ....protocol.survey import GpuSurvey

# In the order in which they came into processors.
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "bf16")
_SECONDS = 20


class Processor(NamedTuple):
    name: str
    cores: int
    allowed: int  # of them, to this process
    features: tuple[str, ...]


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    values: dict[str, str] = {}
    with suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            values.setdefault(key.strip(), value.strip())
    flags = set((values.get("flags") or values.get("Features") or "").split())
    return Processor(
        name=values.get("model name") or f"a {os.uname().machine} processor",
        cores=os.cpu_count() or 1,
        allowed=len(os.sched_getaffinity(0)),
        features=tuple(feature for feature in FEATURES if feature in flags),
    )


def total_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    lines = meminfo.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))


def memory_limit(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The smallest limit of the control groups that this process is in; None where there is none."""
    limits: list[int] = []
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        is_first_version = "memory" in controllers.split(",")
        base, name = (root / "memory", "memory.limit_in_bytes") if is_first_version else (root, "memory.max")
        own = base / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(base):
                with suppress(OSError, ValueError):  # "max" is no limit
                    limits.append(int((folder / name).read_text()))
    smallest = min(limits, default=None)
    # The first version writes a number beyond any memory where there is no limit.
    return smallest if smallest is not None and smallest < 1 << 60 else None


def has_driver(folder: Path = Path("/proc/driver/nvidia")) -> bool:
    return folder.is_dir()


def cards() -> list[GpuSurvey]:
    """What nvidia-smi lists; nothing where it is not there or does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    found = []
    for line in (_output(query) or "").splitlines():
        with suppress(ValueError):
            name, total, free = (part.strip() for part in line.rsplit(",", 2))
            found.append(GpuSurvey(name, int(total) << 20, int(free) << 20))
    return found


def compiler() -> str | None:
    """The first line of what a C++ compiler says of its version."""
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name) and (said := _output([name, "--version"])):
            return said.splitlines()[0]
    return None


def _output(command: list[str]) -> str | None:
    try:
        done = run_to_end(partial(start_process, command[0], command), _SECONDS)
    except (OSError, PenstockError):
        return None
    return done.output.decode(errors="replace").strip() if not done.status else None
