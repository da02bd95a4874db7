"""Inspects this machine: processor, memory limit, graphics cards, compiler, and a worker's survey.

Each function reads one thing and returns it, or None if there is none. This imports no torch: a worker's survey runs in
a process of its own.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..protocol.errors import EngineDeadError, PenstockError
from ..protocol.processes.exit_status import describe_status
from ..protocol.processes.process import inherited_path, run_to_end, start_process
from ..protocol.survey import GpuSurvey, Survey, are_cards_hidden, has_driver

# In the order of their introduction.
FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "bf16")
_SECONDS = 20
_SURVEY_SECONDS = 30
_SURVEY_SECONDS_WITH_TORCH = 180  # its first import from a cold disk takes long


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


def total_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))


def memory_limit(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The smallest limit of this process's control groups; None if there is none."""
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
    # Version 1 writes a number beyond any memory if there is no limit.
    return smallest if smallest is not None and smallest < 1 << 60 else None


def cards() -> list[GpuSurvey]:
    """The cards that nvidia-smi lists; empty if it is missing or doesn't answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    found = []
    for line in (_output(query) or "").splitlines():
        with suppress(ValueError):
            name, total, free = (part.strip() for part in line.rsplit(",", 2))
            found.append(GpuSurvey(name, int(total) << 20, int(free) << 20))
    return found


def has_visible_card() -> bool:
    """A driver may be there without a card, or CUDA_VISIBLE_DEVICES may hide them all."""
    return has_driver() and not are_cards_hidden() and any(Path("/dev").glob("nvidia[0-9]*"))


def compiler() -> str | None:
    """The first line of a C++ compiler's version text."""
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


def ask_survey(folders: Sequence[Path] = (), *, with_torch: bool = False, without_weights: bool = False) -> Survey:
    """A worker's survey, within a time limit: a driver that hangs must not hang the command that looks for it."""
    flags = [*(["--torch"] if with_torch else []), *(["--without-weights"] if without_weights else [])]
    command = [sys.executable, "-P", "-m", "penstock.worker.survey", *flags]
    seconds = _SURVEY_SECONDS_WITH_TORCH if with_torch else _SURVEY_SECONDS
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(inherited_path())}
    try:
        done = run_to_end(partial(start_process, "survey", [*command, *map(str, folders)], env=environment), seconds)
    except TimeoutError:
        what = "Importing torch and asking it for devices" if with_torch else "Looking at the models"
        why = "a disk or a driver that hangs is the likely cause"
        raise EngineDeadError(f"{what} took more than {seconds} s; {why}.") from None
    try:
        # The last line: a library may have printed something before.
        return msgspec.json.decode(done.output.splitlines()[-1], type=Survey)
    except (IndexError, msgspec.DecodeError):
        words = done.errors.decode(errors="replace").strip().splitlines()
        last = words[-1] if words else "it said nothing"
        raise EngineDeadError(f"The worker's survey {describe_status(done.status)}: {last}") from None
