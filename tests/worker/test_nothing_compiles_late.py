"""After a warm-up no kernel is compiled, whatever requests come: a compiler takes half a second of everybody's time.
And what was launched compiles to machine code: a few kernels of every form, and in the long run all of them in their
default form, which spills nothing, with a table of what they take (`-s`).

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
from builders.late_compilation import FORMS, checkpoint

from penstock.kernels.triton.launch.switches import KERNEL_TUNING, SWITCHES

TESTS = Path(__file__).parents[1]
QUICK = ("bf16",)
OFF_UNASKED = tuple(switch.variable for switch in SWITCHES if not switch.is_on_unasked)


FORMS_TRIED = [form if form in QUICK else pytest.param(form, marks=pytest.mark.long) for form in FORMS]


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory) -> str:
    """Triton's cache: what several forms launch is compiled once."""
    return str(tmp_path_factory.mktemp("triton"))


@pytest.mark.parametrize("form", FORMS_TRIED)
@pytest.mark.parametrize("switches", [(), pytest.param(OFF_UNASKED, marks=pytest.mark.long)])
def test_after_a_warm_up_no_kernel_compiles(tmp_path, machine_code, form, switches):
    # Few of the choices that are tried: one may spill or have no room, and no card would find it the fastest.
    most = "1000" if switches else "3"
    checkpoint(tmp_path, form)
    command = [sys.executable, "-P", str(TESTS / "builders" / "late_compilation.py"), str(tmp_path), most, form]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": machine_code} | dict.fromkeys(switches, "1")
    environment |= {KERNEL_TUNING.variable: "0"} if switches else {}  # every kernel in its default form
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=800)
    assert told.returncode == 0, told.stderr[-3000:]
    traces = {trace: found for _, trace, found in map(json.loads, told.stdout.splitlines())}
    kernels = traces.pop("kernels")
    assert len(kernels) >= 3
    for name, taken in sorted(kernels.items()):
        print(*(f"{taken[what]:>6} {what}" for what in ("registers", "spilled", "shared", "programs", "ahead")), name)
        assert not switches or (taken["programs"] and not taken["spilled"]), name
    assert traces["draining"]["steps"] > 80 and traces["mixed"]["steps"] > 120
    for trace, found in traces.items():
        assert found["launches"] > 8 * found["steps"]
        assert (found["drafts"] > 0) == ("deterministic" in form)
        assert not found["compiled"], f"{trace}: " + "\n".join(found["compiled"])
