"""Layers promise more than to agree with transformers: exact chunking, shared blocks, number formats, exact angles, and
every order of parts and form of norm with whatever computes it.
"""

from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from builders.backends import BACKENDS, INVARIANT_BACKENDS, load_on
from builders.cases import for_each
from builders.compared_models import logits_of
from builders.hand_driven import HandDriven
from builders.native_variants import needs_variant
from builders.tiny_model import tiny_model

from penstock.kernels import WeightFormat
from penstock.kernels.arrays import BFLOAT16, FLOAT32
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.torch.operations import TorchOperations
from penstock.kernels.torch.packed.torch_weights import multiplies_bfloat16
from penstock.protocol.errors import ConfigError
from penstock.worker.backends.torch.tensor_cache import KVCache
from penstock.worker.description.config import read_config
from penstock.worker.description.parts.rope import RopeConfig
from penstock.worker.kv.kv_cache import KVShape
from penstock.worker.layers.rope import CHUNK, Rope
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

CPU = torch.device("cpu")


def _prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@for_each("backend", BACKENDS)
def test_rows_of_one_step_share_blocks_that_one_of_them_computes(tmp_path, backend):
    """Each layer writes all keys and values before any row attends."""
    model = load_on(backend, tiny_model(tmp_path, "qwen3"))
    prefix, first_end, second_end = _prompt(32), _prompt(5, 1), _prompt(3, 2)
    apart = HandDriven(model)
    expected = [apart.step([(apart.add(prefix + end), 32 + len(end))])[0] for end in (first_end, second_end)]
    driven = HandDriven(model)
    first, second = driven.add(prefix + first_end), driven.add(prefix + second_end)
    driven.blocks[first] = [driven.free.pop(), driven.free.pop()]
    driven.blocks[second], driven.computed[second] = list(driven.blocks[first]), 32
    # The row that reads the shared blocks stands before the one that computes them.
    found = driven.step([(second, 3), (first, 37)])
    torch.testing.assert_close(found, torch.stack(expected[::-1]), rtol=1e-4, atol=1e-4)


def test_no_rows_give_no_logits(tmp_path):
    model = load_model(tiny_model(tmp_path, "qwen2"))
    driven = HandDriven(model)
    driven.step([(driven.add(_prompt(3)), 3)])
    assert model.forward_pass.logits(torch.empty(3, 112), numpy.empty(0, numpy.int64)).shape == (0, 307)


@for_each("backend", BACKENDS)
@for_each("dtype, kind", [("bfloat16", "bf16"), ("float16", "fp16")])
def test_half_formats_stay_close_to_float32(tmp_path, dtype, kind, backend):
    folder = tiny_model(tmp_path, "qwen3", dtype=dtype)
    models = [load_on(backend, folder, dtype="float32"), load_on(backend, folder)]
    assert [model.kv_kind() for model in models] == ["fp32", kind]
    exact, rounded = (logits_of(model, _prompt(60)) for model in models)
    assert (exact - rounded).abs().max() < 0.15


def test_the_table_of_angles_grows_and_keeps_its_bits():
    config = RopeConfig("default", 1e4, 16, 16, 1.0, trained_context=9000, original_context=9000, figures={})
    at_once, grown = Rope(config, True), Rope(config, True)
    at_once.grow_to(2 * CHUNK + 10)
    for end in (101, CHUNK + 10, 2 * CHUNK + 10):
        grown.grow_to(end)
    assert len(grown.cos) == 3 * CHUNK
    assert (grown.cos == at_once.cos).all() and (grown.sin == at_once.sin).all()


def test_copying_blocks_copies_every_layer_of_keys_and_values():
    kv = KVCache.allocate(KVShape(3, 2, 4), 5, 16, FLOAT32, CPU)
    kv.keys.copy_(torch.rand(kv.keys.shape))
    kv.values.copy_(torch.rand(kv.values.shape))
    kv.copy_blocks(torch.tensor([1, 2]), torch.tensor([4, 0]))
    for memory in (kv.keys, kv.values):
        assert torch.equal(memory[:, [4, 0]], memory[:, [1, 2]])
    assert KVShape(3, 2, 4).bytes_per_token(BFLOAT16) == 2 * 3 * 2 * 4 * 2


@for_each("is_invariant", [True, False])
def test_a_router_tells_scores_of_16_bit_rows_apart_that_16_bits_would_make_equal(is_invariant):
    ops = TorchOperations(CPU, torch.bfloat16, Parallel(), is_invariant)
    router = ops.pack([torch.tensor([[1.0, 0.0], [1.0, 2**-12]])], WeightFormat("fp32"))
    logits = ops.linear(torch.ones(1, 2, dtype=torch.bfloat16), router, None)
    assert logits.tolist() == [[1.0, 1 + 2**-12]]
    weight = ops.pack([torch.ones(2, 2)], WeightFormat("bf16"))
    assert ops.linear(torch.ones(1, 2, dtype=torch.bfloat16), weight, None).dtype == torch.bfloat16


# --- `lm_head_fp32` keeps the matrix that gives the logits in float32, whatever the others are kept in ----------------


def error_of(model: Model, exact: torch.Tensor) -> float:
    return float((logits_of(model) - exact).abs().mean())


@for_each("backend, form", [("native", {"quantization": "int4"}), ("fast", {"dtype": "bfloat16"})])
@for_each("family", ["qwen3", "llama"])
def test_logits_come_nearer_to_those_of_a_model_in_float32(tmp_path, family, backend, form):
    folder = tiny_model(tmp_path, family, tie_word_embeddings=family == "qwen3")
    exact = logits_of(load_on(backend, folder, dtype="float32"))
    rounded = error_of(load_on(backend, folder, **form), exact)
    nearer = error_of(load_on(backend, folder, **form, lm_head_fp32=True), exact)
    if backend == "fast" and not multiplies_bfloat16():  # floats are widened for every product, the head's too
        assert 0 < nearer == rounded
    else:
        assert 0 < nearer < rounded


def test_nothing_else_changes_in_a_model_of_float32_and_other_activations_are_refused(tmp_path):
    folder = tiny_model(tmp_path, "qwen3")
    assert torch.equal(logits_of(load_model(folder)), logits_of(load_model(folder, lm_head_fp32=True)))
    backend = replace(load_on("fast", folder).backend, activations=BFLOAT16)
    with pytest.raises(ConfigError, match="lm_head_fp32=True needs activations in float32"):
        backend.float32_head()


# --- norms behind parts, parallel parts, MLPs without a gate ----------------------------------------------------------


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


def of_prompts(model) -> torch.Tensor:
    driven = HandDriven(model)
    rows = [driven.add(prompt) for prompt in PROMPTS]
    return driven.step([(row, len(PROMPTS[row])) for row in rows], every_token=True)


@needs_variant
@for_each("quantization, least", [("int8", 0.995), ("int4", 0.75)])
@for_each("family", [family for family in FAMILIES if family not in SHARP])
def test_quantized_products_meet_the_rows_as_they_are(tmp_path, family, quantization, least):
    """Integers of a stream that has changed since would be another one's."""
    folder = tiny_model(tmp_path, family, num_hidden_layers=3, **FAMILIES[family])
    exact, rounded = (load_on("native", folder, quantization=each) for each in (None, quantization))
    similar = torch.cosine_similarity(of_prompts(rounded), of_prompts(exact))
    assert similar.min() > least


@needs_variant
@for_each("family", SHARP)
def test_integers_that_products_share_are_those_of_each_product_alone(tmp_path, family, monkeypatch):
    folder = tiny_model(tmp_path, family, **FAMILIES[family])
    shared = of_prompts(load_on("native", folder, quantization="int8"))

    def quantized(ops: NativeOperations, x: Any, group: int) -> Any:
        return ops._record_quantize(x, x.another_quantized(x.width, group))

    monkeypatch.setattr(NativeOperations, "_quantized", quantized)
    assert torch.equal(of_prompts(load_on("native", folder, quantization="int8")), shared)


@pytest.mark.parametrize("backend", INVARIANT_BACKENDS)
@for_each("family", [*FAMILIES, "gemma2"])
def test_a_prompt_has_the_same_bits_in_any_chunks_and_company(tmp_path, family, backend):
    folder = tiny_model(tmp_path, family, **FAMILIES.get(family, {}))
    model = load_on(backend, folder)
    together = of_prompts(model).split([len(prompt) for prompt in PROMPTS])[1]
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
    assert of_prompts(load_model(folder, load_format="dummy")).isfinite().all()
