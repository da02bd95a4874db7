"""Every Triton kernel computes its reference in any order of programs, and compiles for every GPU.

In Triton's interpreter, but for the compiler, which runs in a process of its own. What a figure of it means on a card
is not known here; a spill or a shared memory beyond the card's is known to be wrong.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import json
import math
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
import triton
from builders.absent_card import Resources
from builders.cases import for_each
from builders.elsewhere import tensors_in
from builders.operation_examples.table import EXAMPLES
from builders.real_sizes import FAMILIES
from triton.runtime import interpreter

from penstock.kernels.registry import OPS
from penstock.kernels.triton.launch.switches import DEPENDENT_LAUNCHES

TESTS = Path(__file__).parents[2]
NAMES = [name for name, found in OPS.items() if "triton" in found.versions]
# The quick examples of operations that take seconds: each value of each axis is among them, and of two forms of an
# operation each has those that the other leaves out. Few rows come in a step, or as a row alone from place 26 on.
QUICK_PLACES = {
    "paged_attention.attention_paged": {0, 5, 10, 15},
    "paged_attention.attention_paged_invariant": {3, 6, 9, 12},
    "products.linear_few_rows": {0, 2, 6, 8, 12, *range(16, 26, 2), 27, 31, 33, 37, 41, *range(43, 52, 2)},
    "products.linear_dequantized": {0, *range(3, 8), 8},
    "products.linear_blocks": {*range(0, 40, 2)},
    "products.linear_blocks_invariant": {*range(1, 40, 2)},
    "gpu_experts.experts_gpu": {0, 2, 4, 6},
    "gpu_experts.experts_gpu_invariant": {1, 3, 5, 6},
    # The same function as that of the other form.
    "pointwise.gate_invariant": {*range(2, 18, 3)},
    "pointwise.apply_activation_invariant": {*range(2, 18, 3)},
}


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])
@for_each("name", NAMES)
def test_every_version_for_gpus_agrees_with_its_reference(name, is_whole):
    """All examples only in the long run."""
    found, places = OPS[name], range(1000) if is_whole else QUICK_PLACES.get(name, range(1000))
    for seed in range(3 if is_whole else 1):
        # Made twice, because an operation may write into what it is given, which has to agree, too.
        examples = zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True)
        for arguments, again in (pair for place, pair in enumerate(examples) if place in places):
            pairs = [(found.versions["triton"](*arguments), found.reference(*again))]
            pairs += [pair for pair in zip(arguments, again, strict=True) if isinstance(pair[0], torch.Tensor)]
            for one, other in pairs:
                torch.testing.assert_close(one, other, rtol=found.tolerance, atol=found.tolerance, equal_nan=True)


class Shuffled:
    """In place of the interpreter's count of programs: each comes once, in another order."""

    def __init__(self, builder: interpreter.InterpreterBuilder, seed: int) -> None:
        self.set_dim, self.set_index = builder.set_grid_dim, builder.set_grid_idx
        self.random = random.Random(seed)
        self.dims, self.order = (1, 1, 1), [0]

    def set_grid_dim(self, *dims: int) -> None:
        self.set_dim(*dims)
        self.dims, self.order = dims, list(range(math.prod(dims)))
        self.random.shuffle(self.order)

    def set_grid_idx(self, *_: int) -> None:
        x, rest = divmod(self.order.pop(), self.dims[1] * self.dims[2])
        self.set_index(x, *divmod(rest, self.dims[2]))


def assert_order_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch, every: int = 1) -> None:
    version, builder = OPS[name].versions["triton"], interpreter.interpreter_builder
    pairs = islice(zip(EXAMPLES[name](0), EXAMPLES[name](0), strict=True), 0, None, every)
    for number, (arguments, again) in enumerate(pairs):
        expected = [version(*arguments), *arguments]
        with monkeypatch.context() as patched:
            shuffled = Shuffled(builder, number)
            patched.setattr(builder, "set_grid_dim", shuffled.set_grid_dim)
            patched.setattr(builder, "set_grid_idx", shuffled.set_grid_idx)
            found = [version(*again), *again]
        for one, other in zip(tensors_in(found), tensors_in(expected), strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())


@for_each("name, every", [("products.linear_few_rows", 7), ("race.choose_on_device", 2)])
def test_whoever_comes_last_adds_up_what_all_have_stored(name, every, monkeypatch):
    """Some examples of the two kernels whose programs are joined like that."""
    assert_order_changes_nothing(name, monkeypatch, every)


@pytest.mark.long
@for_each("name", NAMES)
def test_programs_may_come_in_any_order(name, monkeypatch):
    assert_order_changes_nothing(name, monkeypatch)


_GUARDED = """
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
# The shared memory of a multiprocessor that one program may use, in bytes.
SHARED = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
# Families of launches, and of how many one is compiled for the architectures beside Hopper.
EVERY = {**dict.fromkeys(FAMILIES, 3), "small": 3, "adapters": 1, "heads_attending": 3}

# For a Hopper, how many launches a family has, and added up: the programs of each that a multiprocessor has at a time,
# and the bytes that are on their way while those before them are computed.
TAKEN_WITH = "3.7.1"
TAKEN = {
    "products": (64, 231, 2_899_968), "few_rows": (97, 369, 3_923_968), "heads": (3, 29, 0), "rows": (7, 75, 0),
    "logits": (11, 90, 0), "states": (5, 46, 0), "adapters": (8, 35, 73_728),
    "attention": (18, 31, 495_104), "experts": (17, 120, 524_288), "blocks": (256, 1450, 7_077_888),
}  # fmt: skip


def in_a_process(*command: str) -> subprocess.CompletedProcess:
    """Here kernels are interpreted already, and a kernel that looks beyond its arguments ends its process."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "scripts"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = (sys.executable, "-P", *command)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=850, env=environment)


@pytest.mark.long
@pytest.mark.parametrize("side", ["behind", "before"])
def test_no_kernel_looks_beyond_its_arguments(side):
    """They lie at the edge of memory that ends the process, which says whose turn it is before it tries."""
    told = in_a_process("-c", _GUARDED, side)
    tried = told.stdout.splitlines()
    assert tried and tried[-1] == "all", f"{tried[-1:]}: status {told.returncode}\n{told.stderr[-2000:]}"
    assert len(tried) > 20


def assert_compiles(target: int, *asked: str) -> list[Resources]:
    """What the programs of machine code take, of all that was looked at."""
    told = in_a_process(str(TESTS / "builders" / "launched_kernels.py"), str(target), *asked)
    assert told.returncode == 0, told.stderr[-3000:]
    taken = [json.loads(line) for line in told.stdout.splitlines()]
    wrong = [
        f"{name}: {registers} registers, {spilled} bytes spilled, {shared} bytes shared"
        for name, (registers, spilled, shared, *_) in filter(lambda each: each[1], taken)
        if spilled or registers > 255 or shared > SHARED[target]
    ]
    assert not wrong, "\n".join(wrong)
    return [Resources(*resources) for _, resources in taken if resources]


def test_every_kernel_is_understood_by_the_compiler_and_the_largest_spill_nothing():
    """For the generation with the least shared memory."""
    assert len(assert_compiles(89, "quick")) == 3


@pytest.mark.long
def test_kernels_that_begin_early_only_fetch_weights_before_they_wait(monkeypatch):
    monkeypatch.setenv(DEPENDENT_LAUNCHES.variable, "1")
    told = in_a_process(str(TESTS / "builders" / "launched_kernels.py"), "90", "dependent")
    assert told.returncode == 0, told.stderr[-3000:]
    before = dict(map(json.loads, told.stdout.splitlines()))
    assert len(before) >= 3
    for name, touched in before.items():
        assert set(touched) == ({"prefetch.global"} if name.startswith("multiply") else set()), name


@pytest.mark.long
@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize("target", SHARED)
def test_whatever_is_launched_compiles_and_spills_nothing(target, family):
    taken = assert_compiles(target, family, str(1 if target == 90 else EVERY[family]))
    assert taken
    if target == 90 and family in TAKEN and triton.__version__ == TAKEN_WITH:
        found = len(taken), sum(each.programs for each in taken), sum(each.ahead for each in taken)
        assert found == TAKEN[family], "less is a loss of occupancy; if it is meant, or more is launched, write it down"
