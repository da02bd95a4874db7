"""What this machine gives at most, measured by a small C++ program that is compiled on the spot.

    python scripts/machine_limits.py           # one JSON object

`limits(threads)` measures everything in some seconds, `read_bandwidth(threads)` only memory, in a fraction of one, so
that it can stand between two runs of a benchmark.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-O3", "-std=c++17", "-march=native", "-pthread")


class NoCompiler(RuntimeError):
    """Limits are measured by a program that must first be compiled."""


def limits(threads: int) -> dict[str, Any]:
    """Read bandwidth in GB/s, and 1e9 operations a second in float32, int8 and bfloat16 (null: no unit for it)."""
    return _run(str(threads))


def read_bandwidth(threads: int) -> float:
    """GB/s of all threads together, the median of seven passes."""
    return _run(str(threads), "read")["read_gb_s"]["median"]


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


if __name__ == "__main__":
    print(json.dumps(limits(len(os.sched_getaffinity(0))), indent=1))
