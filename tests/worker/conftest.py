"""The forms in which the operations on logits exist here: torch's, and native ones for each instruction set."""

import pytest
from builders import sampled_rows
from builders.native_variants import ENDS

from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.sampling import NativeSampling
from penstock.kernels.registry import Op
from penstock.kernels.torch.sampling import TensorSampling
from penstock.worker.device import HostDevice


@pytest.fixture(params=["torch", *ENDS])
def sampling_form(request, monkeypatch) -> sampled_rows.Form:
    """Runs a test in every form."""
    if request.param == "torch":
        for operation in vars(TensorSampling).values():
            if isinstance(operation, Op):
                monkeypatch.setattr(operation, "_chosen", {})
    else:
        native = sampled_rows.Form(NativeSampling(load(request.param)), HostDevice())
        monkeypatch.setattr(sampled_rows, "form", native)
    return sampled_rows.form
