"""In which order a launch's programs come changes no bit: whoever is last adds up what all have stored."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import math
import random

import pytest
import torch
from builders.elsewhere import tensors_in
from builders.operation_examples.table import EXAMPLES
from triton.runtime import interpreter

from penstock.kernels.registry import OPS

OURS = [name for name, found in OPS.items() if "triton" in found.versions]
# Whose programs wait for one another in this way; the others' are looked at in the long run.
ARE_JOINED = ("products.linear_few_rows", "race.choose_on_device")


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


@pytest.mark.parametrize(
    "name", [name if name in ARE_JOINED else pytest.param(name, marks=pytest.mark.long) for name in OURS]
)
def test_programs_may_come_in_any_order(name, monkeypatch):
    op = OPS[name]
    version, builder = op.versions["triton"], interpreter.interpreter_builder
    for number, (arguments, again) in enumerate(zip(EXAMPLES[name](0), EXAMPLES[name](0), strict=True)):
        expected = [version(*arguments), *arguments]
        with monkeypatch.context() as patched:
            shuffled = Shuffled(builder, number)
            patched.setattr(builder, "set_grid_dim", shuffled.set_grid_dim)
            patched.setattr(builder, "set_grid_idx", shuffled.set_grid_idx)
            found = [version(*again), *again]
        for one, other in zip(tensors_in(found), tensors_in(expected), strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
