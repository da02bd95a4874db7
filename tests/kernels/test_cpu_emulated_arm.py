"""The kernels for ARM under emulation: they compile, and their products and answers have the bits of x86's.

Needs a cross compiler, and in PENSTOCK_ARM_PYTHON a command that runs an aarch64 Python with Penstock's dependencies;
with qemu-user that is `qemu-aarch64 -cpu max -L ROOT ROOT/usr/bin/python3`. No processor of this kind has run them.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.kernels.cpu.build import BuildFolders, build
from penstock.kernels.cpu.variants import ALL_VARIANTS, executable_variants

PROGRAM = Path(__file__).parent / "processor_numbers.py"
COMPILER, PYTHON = "aarch64-linux-gnu-g++", os.environ.get("PENSTOCK_ARM_PYTHON", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (shutil.which(COMPILER) and PYTHON), reason=f"needs {COMPILER} and PENSTOCK_ARM_PYTHON"),
    pytest.mark.skipif("avx2" not in executable_variants(), reason="compares with the variant avx2"),
]


def numbers_of(python: Sequence[str], variant: str, **surroundings: str) -> list[str]:
    words = [*python, PROGRAM, variant]
    done = subprocess.run(words, env=os.environ | surroundings, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("variant", [name for name, each in ALL_VARIANTS.items() if each.machine == "aarch64"])
def test_an_emulated_arm_processor_gives_the_products_and_answers_of_x86_bit_for_bit(variant, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", COMPILER)
    build(variant, BuildFolders(tmp_path, tmp_path / "objects"))
    package = str(Path(sys.prefix) / "package")
    arm = {"PYTHONPATH": package, "PENSTOCK_CPU_LIBRARIES": str(tmp_path), "PENSTOCK_CACHE": str(tmp_path / "cache")}
    found = numbers_of(shlex.split(PYTHON), variant, **arm)
    assert found == numbers_of([sys.executable], "avx2", PENSTOCK_CPU_LIBRARIES="")
