"""The pool of threads that kernels share, through a small program of its own; `.ci/sanitize` runs the same one longer,
and under ThreadSanitizer."""

import subprocess
from pathlib import Path

import pytest

from penstock.kernels.cpu.build import SOURCE, compiler

DRIVER = Path(__file__).parent / "native_driver.cpp"

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def test_every_chunk_runs_once_whatever_the_threads_the_callers_and_the_forks(tmp_path):
    program = tmp_path / "driver"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCE}"]
    subprocess.run([compiler(), *flags, DRIVER, SOURCE / "pool.cpp", "-o", program], check=True, timeout=120)
    done = subprocess.run([program, "2000"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done
