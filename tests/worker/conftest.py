"""The forms in which the operations on logits exist here: torch's, and native ones for each instruction set."""

import pytest
from builders.native_variants import ENDS

from penstock.kernels import sampling
from penstock.kernels.cpu import sampling as native
from penstock.kernels.cpu.library import load
from penstock.kernels.registry import Op

OPERATIONS = [operation for operation in vars(sampling).values() if isinstance(operation, Op)]


@pytest.fixture(params=["torch", *ENDS])
def sampling_form(request, monkeypatch) -> str:
    """Runs a test in every form."""
    if request.param == "torch":
        for operation in OPERATIONS:
            monkeypatch.setattr(operation, "_chosen", {})
    else:
        monkeypatch.setattr(native, "load", lambda: load(request.param))
    return request.param
