"""Every Triton kernel compiles for every GPU that it is meant for, and takes no more of it than a bound.

In a process of its own, since in this one kernels are interpreted. What a figure means on a card is not known here;
a spill or a shared memory beyond the card's is known to be wrong.
"""

import json
import subprocess
import sys

import pytest

TARGETS = (80, 89, 90, 100)
# Of a multiprocessor, what one program may use; in bytes.
SHARED = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
_COMPILE = """
import json, sys
from penstock.kernels.triton.compiled import all_examples, compiled
target, seen = int(sys.argv[1]), set()
for example in all_examples(target):
    is_first = example.kernel.__name__ not in seen and ".unproven." not in example.kernel.__module__
    if sys.argv[2] == "all" or is_first:
        print(json.dumps((example.name, compiled(example, target))), flush=True)
    seen.add(example.kernel.__name__)
"""


# Quick for the generation with the least shared memory.
QUICK = [pytest.param(target, "first", marks=[] if target == 89 else pytest.mark.long) for target in TARGETS]


@pytest.mark.parametrize(
    ("target", "which"), [*QUICK, *(pytest.param(target, "all", marks=pytest.mark.long) for target in TARGETS)]
)
def test_every_kernel_compiles_and_spills_nothing(target, which):
    """In the first way that it is launched, but for what is unproven; or in all."""
    command = [sys.executable, "-P", "-c", _COMPILE, str(target), which]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    taken = [json.loads(line) for line in told.stdout.splitlines()]
    assert taken
    wrong = [
        f"{name}: {registers} registers, {spilled} bytes spilled, {shared} bytes shared"
        for name, (registers, spilled, shared) in taken
        if spilled or registers > 255 or shared > SHARED[target]
    ]
    assert not wrong, "\n".join(wrong)
