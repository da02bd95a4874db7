"""Models whose checkpoints fuse projections compute bit for bit what a Llama with the same numbers computes."""

from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.compared_models import assert_ranks_read_alike
from builders.float8_model import FLOAT8_FORMS
from builders.fused_model import fused_model
from builders.hand_driven import HandDriven
from builders.quantized_model import Form, quantization_config, quantized_copy
from builders.tiny_model import tiny_model
from safetensors.torch import load_file

from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.worker.convert.convert import convert

SHAPES: dict[str, dict[str, Any]] = {
    "groups of 3": {},
    "one key head, tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "as many key heads": {"num_key_value_heads": 6},
    "biases": {"attention_bias": True},
}
PROMPTS = [[7, 8, 9], list(range(20, 60)), [11] * 17]
WIDE = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32)


def pair_of(folder, family, **options):
    """One model in both layouts."""
    original = tiny_model(folder / "original", "llama", **options)
    return original, fused_model(folder / family, original, family)


def answers(model):
    driven = HandDriven(model)
    logits = driven.greedy([driven.add(prompt) for prompt in PROMPTS], 16, budget=32)
    return driven.histories, torch.cat(logits)


def assert_alike(first, second):
    assert second.report.leftovers == []
    (texts, logits), (other_texts, other_logits) = answers(first), answers(second)
    assert texts == other_texts
    assert torch.equal(logits, other_logits)


@pytest.mark.parametrize("backend", ["native", "fast"])
@pytest.mark.parametrize("family, name", [("internlm2", name) for name in SHAPES] + [("phi3", "groups of 3")])
def test_it_answers_as_the_llama(tmp_path, family, name, backend):
    folders = pair_of(tmp_path, family, **SHAPES[name])
    assert_alike(*(load_on(backend, folder, dtype="float32") for folder in folders))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("family", ["internlm2", "phi3"])
def test_it_is_quantized_while_loading_as_the_llama(tmp_path, family, kind):
    assert_alike(*(load_on("native", folder, quantization=kind) for folder in pair_of(tmp_path, family)))


def test_two_ranks_read_their_shares_and_answer_as_with_the_llama(tmp_path):
    folders = []
    for number, (family, heads) in enumerate((("phi3", 2), ("internlm2", 2), ("internlm2", 1))):
        folders += pair_of(tmp_path / f"{number}", family, num_key_value_heads=heads)
    assert_ranks_read_alike(tmp_path / "meet", folders)


FORMS: dict[str, Any] = {
    "gptq": Form("gptq", is_symmetric=False),
    "gptq, ordered": Form("gptq", is_ordered=True),
    "awq": Form("awq", is_symmetric=False),
    "compressed-tensors": Form("pack-quantized", is_symmetric=False),
    "compressed-tensors, 8 bits": Form("int-quantized", bits=8, group_size=0),
}


@pytest.mark.parametrize("name", FORMS)
def test_it_is_read_in_integers_as_the_llama(tmp_path, name):
    form = FORMS[name]
    original, fused = pair_of(tmp_path, "phi3", **WIDE)
    made = [
        quantized_copy(folder, tmp_path / f"quantized {folder.name}", lambda module: form, quantization_config(form))[0]
        for folder in (original, fused)
    ]
    if form.is_ordered:  # the Llama's projections have orders of their own
        tensors = load_file(made[0] / "model.safetensors")
        assert any(name.endswith("g_idx") for name in tensors)
        assert load_on("native", made[1]).report.leftovers == []
        return
    assert_alike(*(load_on("native", folder) for folder in made))


FLOAT8 = {form.name: form for form in FLOAT8_FORMS}


@pytest.mark.parametrize("name", ["compressed-channel", "compressed-group", "deepseek", "fbgemm", "modelopt-blocks"])
def test_it_is_read_in_8_bit_floats_as_the_llama(tmp_path, name):
    form = FLOAT8[name]
    made = [
        quantized_copy(folder, tmp_path / f"quantized {folder.name}", lambda module: form, form.config)[0]
        for folder in pair_of(tmp_path, "phi3", **WIDE)
    ]
    assert_alike(*(load_on("native", folder) for folder in made))


@pytest.mark.parametrize("name", ["compressed-tensor", "static"])
def test_one_scale_for_all_that_is_fused_is_each_ones(tmp_path, name):
    form = FLOAT8[name]
    _, fused = pair_of(tmp_path, "phi3", **WIDE)
    pair = quantized_copy(fused, tmp_path / "quantized", lambda module: form, form.config)
    assert_alike(*(load_on("fast", folder, dtype="float32") for folder in pair))


def test_a_scale_that_two_projections_share_in_part_is_refused(tmp_path):
    form = FLOAT8["deepseek-128"]
    _, fused = pair_of(tmp_path, "phi3", **WIDE)
    folder, _ = quantized_copy(fused, tmp_path / "quantized", lambda module: form, form.config)
    with pytest.raises(ConfigError, match="has 2 rows for the outputs of several projections"):
        load_on("native", folder)


@pytest.mark.parametrize("kind", [None, "int8", "int4"])
@pytest.mark.parametrize("cut", [{}, {"tensor_parallel_size": 2, "is_cut": True}], ids=str)
def test_converting_it_writes_what_converting_the_llama_writes(tmp_path, kind, cut):
    sizes = dict(hidden_size=128, intermediate_size=128, num_attention_heads=8, num_key_value_heads=2)
    for family in ("phi3", "internlm2"):
        made = []
        for source in pair_of(tmp_path / family, family, dtype="bfloat16", **sizes):
            made.append(tmp_path / family / f"made of {source.name}")
            convert(Conversion(str(source), str(source), str(made[-1]), kind, **cut), lambda said: None)
        for path in sorted(made[0].rglob("*.safetensors")):
            first, second = load_file(path), load_file(made[1] / path.relative_to(made[0]))
            assert first.keys() == second.keys()
            assert all(torch.equal(first[name], second[name]) for name in first)
        if not cut:
            assert_alike(*(load_on("native", folder) for folder in made))
