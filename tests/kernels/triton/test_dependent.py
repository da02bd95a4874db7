"""Kernels that come before the kernel ahead of them has ended wait for it: read off the code that they compile to."""

import json
import subprocess
import sys

import pytest

_COMPILE = """
import json, re, sys
from penstock.kernels.triton.compiled import all_examples, code
target, seen = int(sys.argv[1]), set()
for example in all_examples(target):
    name = example.kernel.__name__
    if "IS_DEPENDENT" in example.kernel.arg_names and name not in seen:
        ptx = code(example, target).asm["ptx"]
        found = re.findall(r"griddepcontrol[.]wait|st[.]global|atom[.]global|cp[.]async", ptx)
        print(json.dumps((name, found[:1], "griddepcontrol.wait" in found)), flush=True)
    seen.add(name)
"""


@pytest.mark.long
@pytest.mark.parametrize("target", [80, 90])
def test_a_kernel_waits_before_it_writes_or_copies_where_it_may_come_early(target):
    command = [sys.executable, "-P", "-c", _COMPILE, str(target)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-3000:]
    kernels = [json.loads(line) for line in told.stdout.splitlines()]
    assert kernels
    for name, first, waits in kernels:
        assert (first == ["griddepcontrol.wait"]) == waits == (target >= 90), name
