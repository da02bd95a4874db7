"""A quantized checkpoint as a model: it computes what its twin in floats does, and every tensor is accounted for."""

import pytest
import torch
from builders.hand_driven import HandDriven
from builders.native_variants import available_variants
from builders.quantized_model import FORMS, quantized_model

from penstock.kernels.cpu.library import LibraryError
from penstock.worker.models import load
from penstock.worker.models.load import Model, load_model

forms = pytest.mark.parametrize("form", FORMS, ids=str)


def logits_of(model: Model) -> torch.Tensor:
    driven = HandDriven(model)
    return driven.step([(driven.add(list(range(5, 29))), 24)], every_token=True)


@forms
def test_with_torch_alone_it_gives_the_logits_of_its_twin(tmp_path, form, monkeypatch):
    monkeypatch.setattr(load, "load_library", _no_library)
    model, twin = (load_model(folder) for folder in quantized_model(tmp_path, form))
    assert model.report.leftovers == []
    assert torch.allclose(logits_of(model), logits_of(twin), atol=1e-5)


def _no_library() -> None:
    raise LibraryError("switched off")


@pytest.mark.skipif(not available_variants(), reason="there are no native kernels here")
@forms
def test_native_kernels_differ_from_the_twin_by_the_rounding_of_activations(tmp_path, form):
    model, twin = (load_model(folder) for folder in quantized_model(tmp_path, form))
    assert model.report.leftovers == []
    assert torch.cosine_similarity(logits_of(model), logits_of(twin)).min() > 0.998
