"""Norms behind parts, parallel parts, MLPs without a gate: whatever they are computed with, and made-up weights."""

from typing import Any

import pytest
import torch
from builders.backends import INVARIANT_BACKENDS, load_on
from builders.cases import for_each
from builders.hand_driven import HandDriven
from builders.native_variants import available_variants
from builders.tiny_model import tiny_model

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.operations import NativeOperations
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

PROMPTS = [[7, 8, 9], list(range(20, 60)), [11] * 17]
# Between them they have every order of parts, every form of norm, and an MLP without a gate.
FAMILIES = {
    "olmo2": {}, "glm4": {}, "gemma3_text": {}, "granite": {}, "cohere": {"use_qk_norm": True}, "nemotron": {},
    "stablelm": {"qk_layernorm": True, "use_parallel_residual": True}, "starcoder2": {},
    "gemma4_text": {
        "num_hidden_layers": 3, "num_kv_shared_layers": 1, "layer_types": ["sliding_attention"] + ["full_attention"] * 2
    },
}  # fmt: skip


SHARP = ("gemma4_text",)  # scores that nothing scales make much of any rounding


def logits_of(model) -> torch.Tensor:
    driven = HandDriven(model)
    rows = [driven.add(prompt) for prompt in PROMPTS]
    return driven.step([(row, len(PROMPTS[row])) for row in rows], every_token=True)


@pytest.mark.skipif(not available_variants(), reason="there are no native kernels here")
@for_each("quantization, least", [("int8", 0.995), ("int4", 0.75)])
@for_each("family", [family for family in FAMILIES if family not in SHARP])
def test_quantized_products_meet_the_rows_as_they_are(tmp_path, family, quantization, least):
    """Integers of a stream that has changed since would be another one's."""
    folder = tiny_model(tmp_path, family, num_hidden_layers=3, **FAMILIES[family])
    exact, rounded = (load_on("native", folder, quantization=each) for each in (None, quantization))
    similar = torch.cosine_similarity(logits_of(rounded), logits_of(exact))
    assert similar.min() > least


@pytest.mark.skipif(not available_variants(), reason="there are no native kernels here")
@for_each("family", SHARP)
def test_integers_that_products_share_are_those_of_each_product_alone(tmp_path, family, monkeypatch):
    folder = tiny_model(tmp_path, family, **FAMILIES[family])
    shared = logits_of(load_on("native", folder, quantization="int8"))

    def quantized(ops: NativeOperations, x: Any, group: int) -> Any:
        return ops._record_quantize(x, x.another_quantized(x.width, group))

    monkeypatch.setattr(NativeOperations, "_quantized", quantized)
    assert torch.equal(logits_of(load_on("native", folder, quantization="int8")), shared)


@pytest.mark.parametrize("backend", INVARIANT_BACKENDS)
@for_each("family", [*FAMILIES, "gemma2"])
def test_a_prompt_has_the_same_bits_in_any_chunks_and_company(tmp_path, family, backend):
    folder = tiny_model(tmp_path, family, **FAMILIES.get(family, {}))
    model = load_on(backend, folder)
    together = logits_of(model).split([len(prompt) for prompt in PROMPTS])[1]
    driven = HandDriven(model)
    row = driven.add(PROMPTS[1])
    chunks = [driven.step([(row, count)], every_token=True) for count in (1, 7, 16, 1, 1, 14)]
    assert torch.equal(torch.cat(chunks), together)


@for_each("family", FAMILIES)
def test_the_estimate_of_memory_counts_the_products_that_there_are_and_made_up_ones_answer(tmp_path, family):
    folder = tiny_model(tmp_path, family, **FAMILIES[family])
    estimated = estimated_weight_bytes(read_config(folder), LayerFormats(WeightFormat("fp32"), {}), 1)
    stored = (folder / "model.safetensors").stat().st_size
    assert 0.9 * stored < estimated < stored
    (folder / "model.safetensors").unlink()
    assert logits_of(load_model(folder, load_format="dummy")).isfinite().all()
