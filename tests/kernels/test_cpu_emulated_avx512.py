"""The kernels' code for AVX-512 and AMX on emulated instructions passes their tests and gives AVX2's bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.emulated_kernels import build_emulated

from penstock.kernels.cpu.variants import executable_variants

HERE = Path(__file__).parent
PROGRAM = HERE / "processor_numbers.py"
SUBJECTS = ("attention", "blocks", "experts", "products", "sampling")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("avx2" not in executable_variants(), reason="emulates by AVX2's instructions"),
]


@pytest.mark.parametrize("variant", ["avx512", "amx"])  # the plainest and the fullest
def test_emulated_avx512_passes_the_kernels_tests_and_gives_the_products_and_answers_of_avx2(variant, tmp_path):
    build_emulated(variant, tmp_path)
    emulated = {"PENSTOCK_CPU_LIBRARIES": str(tmp_path), "PENSTOCK_CACHE": str(tmp_path / "cache")}
    emulated["PENSTOCK_TEST_EMULATED"] = variant
    said(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(HERE / f"test_cpu_{subject}.py" for subject in SUBJECTS),
        **emulated,
    )
    of_avx2 = said(PROGRAM, "avx2", PENSTOCK_CPU_LIBRARIES="")
    different = [line for line, other in zip(said(PROGRAM, "avx2", **emulated), of_avx2, strict=True) if line != other]
    # AMX adds products with bf16 weights in pairs, and those with fp16 ones as pairs of bf16, unless an answer is to be
    # portable.
    assert [line.split()[0] for line in different] == (["fp16", "bf16"] if variant == "amx" else [])


def said(*words: object, **surroundings: str) -> list[str]:
    command = [sys.executable, *map(str, words)]
    # The plainest variant, and the only one that is there: also where the processor has others.
    environment = os.environ | {"PENSTOCK_CPU_VARIANT": "avx2"} | surroundings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.splitlines()
