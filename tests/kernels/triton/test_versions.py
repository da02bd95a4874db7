"""Every operation's version for GPUs agrees with its reference, in Triton's interpreter."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch
from builders.operation_examples.table import EXAMPLES

from penstock.kernels.registry import OPS

OURS = [
    pytest.param(name, marks=[pytest.mark.long] if ".unproven." in found.versions["triton"].__module__ else [])
    for name, found in OPS.items()
    if "triton" in found.versions
]


def _agree(found, expected, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("name", OURS)
def test_every_version_for_gpus_agrees_with_its_reference(name, seed):
    found = OPS[name]
    # Made twice, because an operation may write into what it is given.
    for arguments, again in zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True):
        _agree(found.versions["triton"](*arguments), found.reference(*again), found.tolerance)
        # What is written in place agrees too.
        for one, other in zip(arguments, again, strict=True):
            if isinstance(one, torch.Tensor):
                _agree(one, other, found.tolerance)
