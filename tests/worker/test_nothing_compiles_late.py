"""After a warm-up no kernel is compiled, whatever requests come: a compiler takes half a second of everybody's time.

In a process of its own, on a card that is not there: what a launch makes Triton compile is decided before any card is
asked. Another Triton's rules are tried with PYTHONPATH before its folder.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders.absent_card import FORMS
from builders.cases import for_each
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import native_specialize_impl

from penstock.kernels.triton.switches import SWITCHES

TESTS = Path(__file__).parents[1]
QUICK = ("bf16",)
OFF_UNASKED = tuple(switch.variable for switch in SWITCHES if not switch.is_on_unasked)


FORMS_TRIED = [form if form in QUICK else pytest.param(form, marks=pytest.mark.long) for form in FORMS]


@pytest.mark.parametrize("form", FORMS_TRIED)
@pytest.mark.parametrize("switches", [(), pytest.param(OFF_UNASKED, marks=pytest.mark.long)])
def test_after_a_warm_up_no_kernel_compiles(tmp_path, form, switches):
    command = [sys.executable, "-P", str(TESTS / "builders" / "absent_card.py"), str(tmp_path), form]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path} | dict.fromkeys(switches, "1")
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=800)
    assert told.returncode == 0, told.stderr[-3000:]
    traces = {trace: found for _, trace, found in map(json.loads, told.stdout.splitlines())}
    assert traces["draining"]["steps"] > 80 and traces["mixed"]["steps"] > 200
    for trace, found in traces.items():
        assert found["launches"] > 8 * found["steps"]
        assert not found["compiled"], f"{trace}: " + "\n".join(found["compiled"])


# What a launch is compiled for by its arguments, in Triton 3.6 as in 3.7: as they are, and with `do_not_specialize`.
RULES = [
    ("0", 0, ("i32", "D"), ("i32", None)),
    ("1", 1, ("constexpr", 1), ("i32", None)),
    ("16", 16, ("i32", "D"), ("i32", None)),
    ("17", 17, ("i32", ""), ("i32", None)),
    ("more than 31 bits", 2**31, ("i64", "D"), ("i64", None)),
    ("a float", 1.0, ("fp32", None), ("fp32", None)),
    ("a tensor", torch.empty(64), ("*fp32", "D"), ("*fp32", None)),
    ("a tensor that begins anywhere", torch.empty(64)[1:], ("*fp32", ""), ("*fp32", None)),
    ("a tensor that begins at 16 bytes", torch.empty(64)[4:], ("*fp32", "D"), ("*fp32", None)),
]


@for_each("what, value, specialized, other", RULES)
def test_triton_compiles_by_the_rules_that_kernels_are_written_for(what, value, specialized, other):
    backend = make_backend(GPUTarget("cuda", 90, 32))
    assert native_specialize_impl(backend, value, False, True, True) == specialized
    assert native_specialize_impl(backend, value, False, False, True) == other
