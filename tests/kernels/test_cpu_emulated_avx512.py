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
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("avx2" not in executable_variants(), reason="emulates by AVX2's instructions"),
]


@pytest.fixture(scope="module", params=["avx512", "amx"])  # the plainest and the fullest
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The surroundings in which processes load a variant's emulated library."""
    folder = tmp_path_factory.mktemp("emulated")
    build_emulated(request.param, folder)
    libraries = {"PENSTOCK_CPU_LIBRARIES": str(folder), "PENSTOCK_CACHE": str(folder / "cache")}
    return {**libraries, "PENSTOCK_TEST_EMULATED": request.param}


# The first one waits for the compiler, too, so it is the shortest.
@pytest.mark.parametrize("subject", ["sampling", "blocks", "experts", "products", "attention"])
def test_emulated_avx512_passes_the_kernels_tests(emulated, subject):
    said("-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / f"test_cpu_{subject}.py", **emulated)


def test_emulated_avx512_gives_the_products_and_answers_of_avx2(emulated):
    of_avx2 = said(PROGRAM, "avx2", PENSTOCK_CPU_LIBRARIES="")
    different = [line for line, other in zip(said(PROGRAM, "avx2", **emulated), of_avx2, strict=True) if line != other]
    # AMX adds products with bf16 weights in pairs, and those with fp16 ones as pairs of bf16, unless an answer is to be
    # portable.
    amx = emulated["PENSTOCK_TEST_EMULATED"] == "amx"
    assert [line.split()[0] for line in different] == (["fp16", "bf16"] if amx else [])


def said(*words: object, **surroundings: str) -> list[str]:
    command = [sys.executable, *map(str, words)]
    # The plainest variant, and the only one that is there: also where the processor has others.
    environment = os.environ | {"PENSTOCK_CPU_VARIANT": "avx2"} | surroundings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.splitlines()
