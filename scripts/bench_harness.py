"""What every benchmark here notes and how it compares: the machine, alternated rounds, medians, ratios, a record.

    python scripts/bench_harness.py            # prints what `machine()` says of this one

A figure without its machine is worth little: `machine()` gives the processor, the flags that decide which kernels run,
and, measured in the same sitting in a process of their own, read bandwidth and arithmetic rates. `Company` says how
much of the machine others used meanwhile. Only that process imports torch.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
# Which kernels a processor can run, and at what rate, hangs on these.
TELLING_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "amx_int8", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
DISTRIBUTIONS = ("torch", "transformers", "numpy", "msgspec", "pyzmq", "tokenizers")
READ_BYTES = 512 * 2**20  # more than any cache; read several times
MATMUL_SHAPE = (512, 1024, 3072)  # rows, inputs, outputs: a layer of a small model

Rounds = dict[str, list[float]]


# --- the machine ------------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Everything that a figure needs beside it; takes some seconds, most of them to measure."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "revision": revision(),
        **processor(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "last_level_cache": last_level_cache(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        **measured(),
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


def last_level_cache() -> str | None:
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return sizes[-1].read_text().strip() if sizes else None


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


def measured() -> dict[str, Any]:
    """Rates of this machine, from a process of its own: torch and its threads stay out of the caller."""
    words = [sys.executable, __file__, "--measure"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def measure() -> dict[str, Any]:
    import numpy
    import torch

    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    parts = numpy.array_split(numpy.ones(READ_BYTES // 4, dtype=numpy.float32), cores)
    read = [read_bandwidth([part.max for part in parts]) for _ in range(11)]
    rates = {
        "read_gb_s": {"median": round(median(read), 1), "best": round(max(read), 1)},
        "matmul_gflop_s": {
            str(dtype).removeprefix("torch."): round(median([matmul_rate(dtype) for _ in range(5)]), 1)
            for dtype in (torch.float32, torch.bfloat16)
        },
    }
    if torch.cuda.is_available():
        rates["gpu"] = torch.cuda.get_device_name()
    return rates


def read_bandwidth(reads: list[Callable[[], Any]]) -> float:
    """GB/s of all cores together, each reading its own part of `READ_BYTES` once."""
    readers = [threading.Thread(target=read) for read in reads]
    start = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return READ_BYTES / (time.perf_counter() - start) / 1e9


def matmul_rate(dtype: Any) -> float:
    """GFLOP/s of `F.linear` at the size of a small model's layer."""
    import torch

    rows, inputs, outputs = MATMUL_SHAPE
    x, weight = torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
    torch.nn.functional.linear(x, weight)
    start = time.perf_counter()
    torch.nn.functional.linear(x, weight)
    return 2 * rows * inputs * outputs / (time.perf_counter() - start) / 1e9


# --- the company ------------------------------------------------------------------------------------------------------


class Company:
    """How much of the machine others used while the block ran: cores by other processes, cores taken by the host."""

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


# --- the comparison ---------------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def alternated(variants: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """What each variant returned in each round; the order turns, so that none always follows the same other."""
    results: Rounds = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(variants[name]())
    return results


def ratios(results: Rounds, base: str) -> dict[str, float]:
    """Median over the rounds of each variant's figure by the base's in the same round."""
    return {
        name: median(one / other for one, other in zip(figures, results[base], strict=True))
        for name, figures in results.items()
        if name != base
    }


def table(results: Rounds, base: str, unit: str) -> str:
    """One line a variant: median, least, most, and the ratio to the base."""
    compared = ratios(results, base)
    width = max(map(len, results))
    return "\n".join(
        f"{name:<{width}}  {median(figures):>10.3f} {unit} (min {min(figures):.3f}, max {max(figures):.3f})"
        + (f"  {compared[name]:.2f} x {base}" if name in compared else "")
        for name, figures in results.items()
    )


def append_record(path: Path, benchmark: str, about: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """One JSON object a line, so that figures of many sittings can be laid side by side."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"benchmark": benchmark, "machine": about, "figures": figures}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", action="store_true", help="print only the measured rates")
    arguments = parser.parse_args()
    print(json.dumps(measure() if arguments.measure else machine(), indent=1))


if __name__ == "__main__":
    main()
