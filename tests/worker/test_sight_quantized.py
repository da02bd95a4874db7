"""Quantized checkpoints of models that see: an encoder that was left out is read in floats, and any other as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.compared_models import check_equal
from builders.float8_model import FLOAT8_FORMS, Float8Form
from builders.quantized_model import Form, quantization_config, quantized_copy
from builders.runner_harness import slotted_runner
from builders.seeing_models import Scene, seeing_model
from builders.seeing_runner import SeeingRunner
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import ConfigError
from penstock.worker.models.load import Model

DEEPSEEK = next(form for form in FLOAT8_FORMS if form.name == "deepseek")
FORMS: list[Form | Float8Form] = [
    Form("gptq"), Form("awq", is_symmetric=False), Form("pack-quantized"), Form("int-quantized", bits=8, group_size=0),
    DEEPSEEK,
]  # fmt: skip
LEFT_OUT = {"gptq": {}, "awq": {"modules_to_not_convert": ["visual"]}, "fp8": {"modules_to_not_convert": ["visual"]}}


def quantized(folder: Path, form: Form | Float8Form, with_encoder: bool = False) -> tuple[Path, Path, Any]:
    """The checkpoint, its twin in floats, and transformers' model of that one before it was rounded."""
    reference = seeing_model(folder / "twin", "Qwen3VL")
    config = dict(form.config if isinstance(form, Float8Form) else quantization_config(form))
    config |= LEFT_OUT.get(config["quant_method"], {"ignore": ["lm_head", "re:.*visual.*"]})
    found = quantized_copy(
        folder / "twin",
        folder / "model",
        lambda module: form if with_encoder or "visual" not in module else None,
        config,
    )
    return *found, reference


def rows_of(model: Model, reference: Any) -> torch.Tensor:
    assert model.report.leftovers == []
    scene = Scene("Qwen3VL").picture(6, 10)
    runner = SeeingRunner(slotted_runner(model))
    seen = runner.enter(scene, scene.positions(reference))
    runner.encode(seen)
    return runner.runner.media.rows[runner.runner.media._of_entries[0]]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_encoder_that_was_left_out_is_read_as_it_is(form, tmp_path):
    model, twin, _ = quantized(tmp_path, form)
    models = [load_on("native", folder) for folder in (model, twin)]
    assert models[0].report.leftovers == []
    check_equal(*(each.encoding.encoder for each in models))


@pytest.mark.parametrize("backend", ["native", "fast"])
@pytest.mark.parametrize("form", [Form("int-quantized", bits=8, group_size=0), DEEPSEEK], ids=str)
def test_an_encoder_in_integers_or_8_bit_floats_sees_nearly_the_same(form, backend, tmp_path):
    *folders, reference = quantized(tmp_path, form, with_encoder=True)
    found, right = (rows_of(load_on(backend, folder), reference) for folder in folders)
    assert torch.cosine_similarity(found.float(), right.float()).min() > 0.998


def test_tensors_of_other_shapes_are_refused_by_name(tmp_path):
    model, *_ = quantized(tmp_path, Form("gptq"))
    tensors, name = load_file(model / "model.safetensors"), "model.visual.blocks.1.attn.proj.weight"
    save_file(tensors | {name: tensors[name][:, :32].contiguous()}, model / "model.safetensors")
    with pytest.raises(ConfigError, match=r"visual\.blocks\.1\.attn\.proj\.weight in .* has shape \(48, 32\)"):
        load_on("native", model)


def test_layers_with_groups_of_their_own_are_found_by_the_names_that_the_file_has(tmp_path):
    own, usual = Form("gptq", group_size=16), Form("gptq")
    seeing_model(tmp_path / "twin", "Qwen3VL")
    name = "model.language_model.layers.1.mlp.down_proj"
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "extra_config": {name: {"group_size": 16}}}
    model, _ = quantized_copy(
        tmp_path / "twin", tmp_path / "model",
        lambda module: None if "visual" in module else own if module == name else usual, config,
    )  # fmt: skip
    assert json.loads((model / "config.json").read_text())["quantization_config"] == config
    assert load_on("native", model).report.leftovers == []
