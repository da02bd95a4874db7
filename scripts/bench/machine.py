"""The conditions of a figure: the machine, its limits, and who else used it meanwhile.

`limits(threads)` compiles a small C++ program and measures everything in some seconds; `read_bandwidth(threads)`
measures memory alone, in a fraction of one, so that it can stand between two runs. Without a compiler there are no
limits.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

Result = TypeVar("Result")

ROOT = Path(__file__).resolve().parents[2]
# The instruction sets that decide which kernels a processor can run, and how fast.
TELLING_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "amx_int8", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
DISTRIBUTIONS = ("torch", "transformers", "numpy", "msgspec", "pyzmq", "tokenizers")
SOURCE = Path(__file__).with_name("limits.cpp")
FLAGS = ("-O3", "-std=c++17", "-march=native", "-pthread")


class NoCompiler(RuntimeError):
    """Limits are measured by a program that must first be compiled."""


def machine() -> dict[str, Any]:
    """Describe this machine; takes some seconds to measure its limits."""
    cores = len(os.sched_getaffinity(0))
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    try:
        limit = limits(cores)
    except NoCompiler as error:
        limit = {"none": str(error)}
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "revision": revision(),
        **processor(Path("/proc/cpuinfo").read_text()),
        "cores": cores,
        "last_level_cache": caches[-1].read_text().strip() if caches else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "limits": limit,
        "versions": versions(),
    }


def processor(cpuinfo: str) -> dict[str, Any]:
    """Name and telling flags, from the text of /proc/cpuinfo (x86 and ARM spell them differently)."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    name = fields.get("model name") or fields.get("CPU part") or platform.machine()
    return {"processor": name, "flags": [flag for flag in TELLING_FLAGS if flag in flags]}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str | None:
    """The commit, with `+` where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    return commit + ("+" if git("status", "--porcelain") else "") if commit else None


# --- limits -----------------------------------------------------------------------------------------------------------


def limits(threads: int) -> dict[str, Any]:
    """Read bandwidth in GB/s, and 1e9 operations a second in float32, int8 and bfloat16 (null: no unit for it)."""
    return _run(str(threads))


def read_bandwidth(threads: int) -> float:
    """GB/s of all threads together, the median of seven passes."""
    return _run(str(threads), "read")["read_gb_s"]["median"]


def with_bandwidth(threads: int, run: Callable[[], Result]) -> tuple[Result, float]:
    """The result of `run`, and the bandwidth read before and after it: on a shared machine it drifts within minutes."""
    before = read_bandwidth(threads)
    return run(), (before + read_bandwidth(threads)) / 2


def _run(*words: str) -> dict[str, Any]:
    return json.loads(subprocess.run([_probe(), *words], capture_output=True, text=True, check=True).stdout)


@functools.cache
def _probe() -> str:
    """Path of the compiled program; kept in the temporary folder under its source's hash."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise NoCompiler("The machine's limits are measured in C++, and no compiler was found. Install g++ or set CXX.")
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    program = Path(tempfile.gettempdir()) / f"penstock-machine-limits-{os.getuid()}-{digest}"
    if not program.exists():
        unfinished = program.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(unfinished)], check=True)
        unfinished.rename(program)
    return str(program)


# --- company ----------------------------------------------------------------------------------------------------------


class Company:
    """Others' use of the machine while the block ran: cores by other processes, cores taken by the host."""

    def __enter__(self) -> "Company":
        self.others = self.host = 0.0
        self._before = self._readings()
        return self

    def __exit__(self, *exception: object) -> None:
        seconds, all_busy, own, host = (
            after - before for after, before in zip(self._readings(), self._before, strict=True)
        )
        self.others = max(all_busy - own, 0.0) / seconds
        self.host = host / seconds

    @staticmethod
    def _readings() -> tuple[float, float, float, float]:
        """Wall seconds, then CPU seconds: of everyone, of this process with its descendants, taken by the host."""
        cpu = psutil.cpu_times()
        return time.monotonic(), cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq, own_cpu_seconds(), cpu.steal

    def __str__(self) -> str:
        return f"meanwhile others used {self.others:.2f} cores, and the host took {self.host:.2f}"


def own_cpu_seconds() -> float:
    """This process and its descendants, those that have ended among them."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(part.ru_utime + part.ru_stime for part in usage)
    for child in psutil.Process().children(recursive=True):
        try:
            seconds += sum(child.cpu_times()[:4])  # its own, and those of its ended children
        except psutil.NoSuchProcess:
            continue
    return seconds


def on_cpu(*pids: int) -> float:
    """CPU seconds of processes by the scheduler's own nanoseconds: their usual times come in ticks of 10 ms."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
