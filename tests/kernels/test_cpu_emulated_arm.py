"""The kernels for ARM under emulation: they compile, and their products and answers have the bits of x86's, portable
ones those that are recorded.

Needs a cross compiler, and in PENSTOCK_ARM_PYTHON a command that runs an aarch64 Python with Penstock's dependencies;
with qemu-user that is `qemu-aarch64 -cpu max -L ROOT ROOT/usr/bin/python3`. No processor of this kind has run them.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import portable_answers

from penstock.kernels.cpu.build import BuildFolders, build
from penstock.kernels.cpu.variants import ALL_VARIANTS, executable_variants

PROGRAM = Path(__file__).parent / "processor_numbers.py"
COMPILER, PYTHON = "aarch64-linux-gnu-g++", os.environ.get("PENSTOCK_ARM_PYTHON", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (shutil.which(COMPILER) and PYTHON), reason=f"needs {COMPILER} and PENSTOCK_ARM_PYTHON"),
    pytest.mark.skipif("avx2" not in executable_variants(), reason="compares with the variant avx2"),
]


def printed(*words: str | Path, **surroundings: str) -> list[str]:
    done = subprocess.run(words, env=os.environ | surroundings, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("variant", [name for name, each in ALL_VARIANTS.items() if each.machine == "aarch64"])
def test_an_emulated_arm_processor_gives_the_products_and_answers_of_x86_bit_for_bit(variant, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", COMPILER)
    build(variant, BuildFolders(tmp_path, tmp_path / "objects"))
    package = str(Path(sys.prefix) / "package")
    arm = {"PYTHONPATH": package, "PENSTOCK_CPU_LIBRARIES": str(tmp_path), "PENSTOCK_CACHE": str(tmp_path / "cache")}
    found = printed(*shlex.split(PYTHON), PROGRAM, variant, **arm)
    assert found == printed(sys.executable, PROGRAM, "avx2", PENSTOCK_CPU_LIBRARIES="")
    checkpoints = tmp_path / "checkpoints.json"
    checkpoints.write_text(json.dumps(portable_answers.made_in(tmp_path / "models")))
    found = printed(*shlex.split(PYTHON), portable_answers.__file__, checkpoints, variant, **arm)
    assert found == portable_answers.RECORDED.read_text().splitlines()
