"""The ways in which a CPU computes a model, for tests that hold all of them to the same behaviour."""

from pathlib import Path
from typing import Any

import pytest

from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model

from .native_variants import available_variants, forced

# Native kernels, and torch's operations in their row-invariant and in their fast form.
BACKENDS = ("native", "invariant", "fast")
# Those whose answers are free of their company's influence.
INVARIANT_BACKENDS = ("native", "invariant")
NAN_BYTE = 0xFF  # so filled, memory is NaN in every float format


def load_on(backend: str, folder: Path, **options: Any) -> Model:
    if backend == "native":
        if not available_variants():
            pytest.skip("no compiler here, or no variant for this processor")
        model = load_model(folder, **options)
        assert model.backend.library is not None, model.backend.missing
        return model
    with forced("none"):
        return load_model(folder, options=BackendOptions(deterministic=backend == "invariant"), **options)
