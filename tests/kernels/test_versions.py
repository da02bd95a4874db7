"""Every operation's version for processors agrees with its reference; those for GPUs: triton/test_versions.py."""

import pytest
import torch
from builders.operation_examples.table import EXAMPLES

import penstock.kernels.sampling  # noqa: F401  registers its operations
from penstock.kernels import FAST, INVARIANT
from penstock.kernels.registry import OPS, op

TWINS = ["linear", "rms_norm", "silu_mul", "attention"]


def _agree(found, expected, tolerance):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", OPS)
def test_every_version_of_an_operation_agrees_with_its_reference(name):
    found = OPS[name]
    ours = [version for backend, version in found.versions.items() if backend == "cpu"]
    for version in (found.reference, *ours):
        for seed in range(3):
            # Made twice, because an operation may write into what it is given.
            for arguments, again in zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True):
                _agree(version(*arguments), found.reference(*again), found.tolerance)


@pytest.mark.parametrize("name", TWINS)
def test_the_invariant_form_agrees_with_the_fast_one(name):
    fast, invariant = getattr(FAST, name), getattr(INVARIANT, name)
    for seed in range(3):
        for arguments, again in zip(EXAMPLES[fast.name](seed), EXAMPLES[fast.name](seed), strict=True):
            _agree(invariant(*arguments), fast(*again), fast.tolerance)


def test_a_call_goes_to_the_version_of_its_device_if_that_can_run():
    @op()
    def doubled(x):
        return x * 2

    OPS.pop(doubled.name)

    @doubled.implement("triton")
    def doubled_on_a_gpu(x):
        raise AssertionError("a CPU tensor came here")

    @doubled.implement("cpu", available=lambda: False)
    def doubled_without_a_compiler(x):
        raise AssertionError("this version can't run")

    assert doubled(torch.ones(2)).tolist() == [2, 2]

    @doubled.implement("cpu")
    def doubled_by_addition(x):
        return x + x + 0.5

    assert doubled(torch.ones(2)).tolist() == [2.5, 2.5]
