"""No kernel reads or writes beyond what it is given: its arguments lie at the edge of memory that ends the process.

In processes of their own, which say whose turn it is before they try.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_TRY = """
import sys
from builders import interpreted
from builders.elsewhere import with_tensors
from builders.guarded_memory import guarded
from builders.operation_examples.table import EXAMPLES
from penstock.kernels.registry import OPS
for name, op in OPS.items():
    if "triton" in op.versions:
        for number, arguments in enumerate(EXAMPLES[name](0)):
            print(f"{name}, inputs {number}", flush=True)
            op.versions["triton"](*with_tensors(arguments, lambda tensor: guarded(tensor, sys.argv[1])))
print("all", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("side", ["behind", "before"])
def test_no_kernel_looks_beyond_its_arguments(side):
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{_TRY}",
        side,
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    tried = told.stdout.splitlines()
    assert tried and tried[-1] == "all", f"{tried[-1:]}: status {told.returncode}\n{told.stderr[-2000:]}"
    assert len(tried) > 20
