"""`lm_head_fp32` keeps the matrix that gives the logits in float32, whatever the others are kept in."""

from dataclasses import replace

import pytest
import torch
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.tiny_model import tiny_model

from penstock.kernels import multiplies_bfloat16
from penstock.protocol.errors import ConfigError
from penstock.worker.models.load import Model, load_model


def logits_of(model: Model) -> torch.Tensor:
    driven = HandDriven(model)
    return driven.step([(driven.add(list(range(5, 29))), 24)], every_token=True)


def error_of(model: Model, exact: torch.Tensor) -> float:
    return float((logits_of(model) - exact).abs().mean())


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize(("backend", "form"), [("native", {"quantization": "int4"}), ("fast", {"dtype": "bfloat16"})])
def test_logits_come_nearer_to_those_of_a_model_in_float32(tmp_path, family, backend, form):
    folder = tiny_model(tmp_path, family, tie_word_embeddings=family == "qwen3")
    exact = logits_of(load_on(backend, folder, dtype="float32"))
    rounded = error_of(load_on(backend, folder, **form), exact)
    nearer = error_of(load_on(backend, folder, **form, lm_head_fp32=True), exact)
    if backend == "fast" and not multiplies_bfloat16():  # floats are widened for every product, the head's too
        assert 0 < nearer == rounded
    else:
        assert 0 < nearer < rounded


def test_nothing_else_changes_in_a_model_of_float32(tmp_path):
    folder = tiny_model(tmp_path, "qwen3")
    assert torch.equal(logits_of(load_model(folder)), logits_of(load_model(folder, lm_head_fp32=True)))


def test_activations_that_are_not_float32_are_refused(tmp_path):
    backend = replace(load_on("fast", tiny_model(tmp_path, "qwen3")).backend, activations=torch.bfloat16)
    with pytest.raises(ConfigError, match="lm_head_fp32=True needs activations in float32"):
        backend.float32_head()
