"""Every Triton kernel on a card agrees with its reference: on its own small inputs, and at an 8B model's sizes.

On a card the references compute in float32 there. A kernel that reads where nothing is ends its process's use of the
card, so each is waited for before the next one is launched, and whose fault it was is said: `scripts/check_gpu` gives
every family a process of its own. With `-m long` the kernels are interpreted, on small sizes: that proves the tests.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import torch
from builders.elsewhere import LIMITS, copied_to, distance, share_of_different, tensors_in, with_tensors
from builders.operation_examples.table import EXAMPLES
from builders.real_sizes import FAMILIES, Case, Sizes

from penstock.kernels import reference, triton
from penstock.kernels.registry import OPS, Op

_SEEDS = {"cuda": 3, "cpu": 1}
_LEAST_TOLERANCE = 1e-4  # of floats: a card's exponentials and divisions are not the CPU's
for module in iter_modules(reference.__path__):
    import_module(f"{reference.__name__}.{module.name}")


@pytest.fixture(scope="module")
def operations(device) -> dict[str, Op]:
    """By their own names."""
    if device == "cpu":
        import_module("builders.interpreted")
    list(triton.modules())  # imported, they register their versions in Triton
    return {name.rpartition(".")[2]: op for name, op in OPS.items()}


@pytest.mark.parametrize("name", [name.rpartition(".")[2] for name in OPS])
def test_every_kernel_agrees_with_its_reference_on_its_own_inputs(device, operations, name):
    op = operations[name]
    if "triton" not in op.versions:
        pytest.skip("has no version in Triton")
    tolerance = max(op.tolerance, _LEAST_TOLERANCE) if op.tolerance else 0.0
    for seed in range(_SEEDS[device]):
        for number, (arguments, again) in enumerate(zip(EXAMPLES[op.name](seed), EXAMPLES[op.name](seed), strict=True)):
            # Copied, since the next inputs may share tensors with these.
            given, plain = copied_to(arguments, device), copied_to(again, "cpu")
            found, expected = launched(op, given, f"inputs {number} of seed {seed}"), op.reference(*plain)
            # Tensors that are written in place agree too.
            sides = ((found, *only_tensors(given)), (expected, *only_tensors(plain)))
            pairs = zip(*map(tensors_in, sides), strict=True)
            is_right = all(torch.allclose(a.cpu(), b, tolerance, tolerance, equal_nan=True) for a, b in pairs)
            assert is_right, f"inputs {number} of seed {seed}"


def launched(op: Op, arguments: tuple[Any, ...], what: str) -> Any:
    """The kernel's result, once it is there."""
    try:
        found = op.versions["triton"](*arguments)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError as error:
        pytest.fail(f"{op.name}, {what}: {error}", pytrace=False)
    return found


def only_tensors(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    return [each for each in arguments if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_agree_with_their_references_at_real_sizes(device, operations, family):
    torch.manual_seed(0)
    wrong: list[str] = []
    for case in FAMILIES[family](Sizes(device, is_small=device == "cpu")):
        found = faults(case, operations[case.operation], device)
        # At once, for whoever has to end this before it is through.
        print("\n".join(found) or f"{case.operation}, {case.what}: right", flush=True)
        wrong += found
    assert not wrong, "\n".join(wrong)


def faults(case: Case, op: Op, device: str) -> list[str]:
    """A line for every tensor in the result that is too far from the reference's."""
    given, plain = copied_to(case.arguments, device), in_float32(copied_to(case.arguments, device))
    found = list(tensors_in((launched(op, given, case.what), [given[place] for place in case.changed])))
    # The references make some of their tensors where torch makes them by default.
    with torch.device(device):
        expected = list(tensors_in((op.reference(*plain), [plain[place] for place in case.changed])))
    told = []
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.is_floating_point():
            apart, most = distance(one, other), LIMITS.get(step_dtype(case, one), 1e-2)
        else:
            apart, most = share_of_different(one, other), case.may_differ
        if not apart <= most:
            told.append(f"{case.operation}, {case.what}, result {number}: {apart:.3g} apart, {most:g} is allowed")
    return told


def step_dtype(case: Case, result: torch.Tensor) -> torch.dtype:
    """The coarser format of the result and of what is given first: sums of halves are no better than halves."""
    first = case.arguments[0]
    dtypes = [each.dtype for each in (result, first) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    return max(dtypes, key=LIMITS.__getitem__)


def in_float32(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same numbers, where they are activations; what is packed stays as it is."""
    return tuple(
        with_tensors(each, lambda tensor: tensor.float()) if isinstance(each, torch.Tensor) and each.is_floating_point()
        else each
        for each in arguments
    )  # fmt: skip
