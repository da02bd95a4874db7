"""Every operation's version for GPUs agrees with its reference, in Triton's interpreter."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import pytest
import torch

from penstock.kernels.registry import OPS

OURS = [name for name, found in OPS.items() if "triton" in found.versions]


@pytest.mark.parametrize("name", OURS)
def test_every_version_for_gpus_agrees_with_its_reference(name):
    found = OPS[name]
    for seed in range(2):
        # Made twice, because an operation may write into what it is given.
        for arguments, again in zip(found.inputs(seed), found.inputs(seed), strict=True):
            computed, expected = found.versions["triton"](*arguments), found.reference(*again)
            torch.testing.assert_close(computed, expected, rtol=found.tolerance, atol=found.tolerance, equal_nan=True)
            # What is written in place agrees too.
            tensors = [(one, other) for one, other in zip(arguments, again) if isinstance(one, torch.Tensor)]
            for one, other in tensors:
                torch.testing.assert_close(one, other, rtol=found.tolerance, atol=found.tolerance, equal_nan=True)
